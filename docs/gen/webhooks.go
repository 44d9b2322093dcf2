package main

import (
	"log"
	"reflect"

	"plantstore/cmd"
	"plantstore/controllers"
)

// addWebhooks describes what plantstore follow delivers of each resource with a feed of changes.
func addWebhooks(document object) {
	for _, r := range resources() {
		d := describe(r)
		if !d.Followed {
			continue
		}
		event := d.Name + ".changed"
		says := object{
			"type":      object{"type": "string", "const": event},
			"timestamp": object{"type": "string", "format": "date-time", "description": "When the service first tried to deliver the message"},
			"data":      object{"$ref": "#/components/schemas/" + d.Type + "Changes"},
		}
		var required []any
		for i := range reflect.TypeFor[cmd.WebhookMessage]().NumField() {
			name := reflect.TypeFor[cmd.WebhookMessage]().Field(i).Tag.Get("json")
			if says[name] == nil {
				log.Fatalf("addWebhooks must describe %s of a cmd.WebhookMessage", name)
			}
			required = append(required, name)
		}
		responses := object{}
		for status, text := range map[string]string{
			"2XX": "The message is accepted", "410": "No more messages are wanted: plantstore follow ends",
			"default": "The message is sent again, at first after 5 seconds and later after hours",
		} {
			responses[status] = object{"description": text}
		}
		at(document, "webhooks", event)["post"] = object{
			"operationId": d.Name + "Changed", "tags": []any{d.Name}, "summary": "Receive changes of " + d.Nouns, "security": []any{},
			"description": "What `plantstore follow --post` sends, in order, according to Standard Webhooks 1.0. The signature is of the id, the timestamp and the body, with a dot between them.",
			"parameters":  []any{webhookHeader("webhook-id", "The same for each attempt to deliver the message"), webhookHeader("webhook-timestamp", "When this attempt was made, in seconds since 1970"), webhookHeader("webhook-signature", "v1, and the HMAC-SHA256 in base64")},
			"requestBody": object{"required": true, "content": object{controllers.TypeJSON: object{"schema": object{"type": "object", "required": required, "properties": says}}}},
			"responses":   responses,
		}
	}
}

func webhookHeader(name, description string) object {
	return object{"name": name, "in": "header", "required": true, "description": description, "schema": object{"type": "string"}}
}
