package main

import (
	"fmt"
	"log"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"plantstore/config"
	"plantstore/controllers"
	"plantstore/database"
	"plantstore/database/limit"
	"plantstore/database/table"
	"plantstore/middleware"
	"plantstore/models"
	"plantstore/routes"
)

// bound is a row of the table of limits. value is the highest value, or the lowest and the highest;
// each {} stands for the default of one of settings, in their order. exceeded is the error code, or what
// else happens beyond the limit.
type bound struct{ what, value, settings, exceeded string }

// limits returns the limits that clients can meet. Values come from the code, and from the
// defaults of the settings.
func limits() []bound {
	timeout, err := time.ParseDuration(config.SettingOf("database.timeout").Default)
	if err != nil {
		log.Fatal(err)
	}
	closed := "the connection is closed"
	return append(ruleLimits(), []bound{
		{"`q`", words(models.Plant{}.Rules().Text("name").Part()), "", "40007"},
		{"values of a parameter that may be repeated, for example `tag`", number(models.MaxValues), "", "40007"},
		{"page", fmt.Sprintf("%s items, and %d by default", number(controllers.MaxLimit), controllers.DefaultLimit), "", "40007"},
		{"`X-Total-Count`", number(controllers.MaxCount), "", fmt.Sprintf("`%d+`", controllers.MaxCount)},
		{"rows that a PATCH or DELETE of selected rows writes", fmt.Sprintf("%s, and %s by default", number(controllers.MaxCount), number(controllers.MaxLimit)), "", "40007"},
		{"changes in an event", number(database.MaxChanges), "", "the next event has the rest"},
		{"`If-Match`", number(controllers.MaxVersions) + " different ETags", "", "40007"},
		{"request body, other than that of an import", "{}", "server.max_body_bytes", "41301"},
		{"body of an import, decompressed", "{}", "bulk.max_body_bytes", "41301"},
		{"decompressed body of more than " + size(controllers.RatioFrom), fmt.Sprintf("%d times its compressed size", controllers.MaxRatio), "", "41301"},
		{"line of an import", size(controllers.MaxLine), "", "41301"},
		{"row of CSV of more than one line", size(controllers.MaxRecord), "", "41301"},
		{"rejected rows that a report lists", number(models.MaxRejected), "", "the others are only counted"},
		{"request line and headers", "{}, and 4 KiB that Go adds", "server.max_header_bytes", "431, without an Error; over HTTP/2, one header of this size ends the connection"},
		{"time to send the headers", "{}", "server.read_header_timeout", closed},
		{"time to send a request with a body, other than an import", "{}", "server.read_timeout", "40001, and " + closed},
		{"time to receive a response, from the end of the request's headers, other than to an import, an export or a request for changes", "{}", "server.write_timeout", closed},
		{"time to take a part of the response to a request for changes", seconds(middleware.StreamTimeout), "", closed},
		{"idle connection", "{}", "server.idle_timeout", closed},
		{"time for an import or export, with the wait for its turn", "{}", "bulk.timeout", "41301 or 50302, or " + closed},
		{"time for a database operation", "{}", "database.timeout", "50302"},
		{"wait for a row that another transaction has locked", seconds(timeout - limit.Wait(timeout)), "database.timeout", "50301"},
		{"writes of rows that wait to be written, and reads by id that wait", "{} of each kind, and half with one token", "writes.queue", "50301"},
		{"imports and exports that store or read at the same time, in the primary and in each standby", withEach(database.MaxBulk, database.MaxBulkEach), "", "50301"},
		{"imports among these, in the primary", withEach(database.MaxImports, database.MaxImportsEach), "", "the others wait; 50301 after `bulk.timeout`"},
		{"searches and counts at the same time", withEach(database.MaxScans, 1), "", "the others wait; 50301 after `database.timeout`"},
		{fmt.Sprintf("pages with a limit above %d at the same time, until their response begins", models.LargePage), withEach(database.MaxPages, database.MaxPagesEach), "", "the others wait; 50301 after " + seconds(middleware.PageWait)},
		{"imports and exports in all", withEach(database.MaxTransfers, database.MaxTransfersEach), "", "50301"},
		{"requests that wait for changes, or stream them", withEach(database.MaxFollowers, database.MaxFollowersEach), "", "50301"},
		{"writes that wait for a locked row", withEach(database.MaxWaiters, database.MaxWaitersEach), "", "50301"},
		{"bodies of more than " + size(middleware.Small) + " that are being received", size(routes.ReceiveLimit) + ", and half with one token", "", "50301"},
		{"pages of more than " + size(middleware.Small) + " that clients have not read yet; each import reserves " + size(controllers.MaxReport) + " for its report", size(routes.SendLimit) + ", and half with one token", "", "50301, or the stream ends"},
		{"temporary files of imports and exports", "{}, and half with one token", "database.temporary_bytes", "50301"},
		{"stalling during an import or export", "{}, and {} per second on average, as they are sent", "bulk.grace bulk.min_bytes_per_second", "40001, or " + closed},
		{"open connections", "{}", "server.max_connections", "new ones replace idle ones, or wait"},
		{"open connections from an address", "half of these", "server.max_connections_per_address", "new ones replace its idle ones, or are closed"},
		{"requests per second, per token and per address", "not limited", "limits.requests_per_second limits.burst", "42901"},
		{"wrong tokens per minute, per address", "{}", "limits.failures_per_minute", "42901"},
	}...)
}

// ruleLimits returns the limits by the rules of all models.
func ruleLimits() (all []bound) {
	for _, model := range models.All() {
		rules, noun := model.Rules(), table.NounOf(model)
		for _, column := range slices.Sorted(maps.Keys(rules)) {
			if rules.Server(column) { // clients do not set it
				continue
			}
			if value := words(models.Base(rules[column])); value != "" {
				all = append(all, bound{fmt.Sprintf("`%s` of %s %s", column, article(noun), noun), value, "", "40006"})
			}
		}
	}
	return all
}

func limitTable() string {
	var text strings.Builder
	text.WriteString("| limit | value | setting | if exceeded |\n| --- | --- | --- | --- |\n")
	for _, l := range limits() {
		var settings []string
		for key := range strings.FieldsSeq(l.settings) {
			settings = append(settings, "`"+key+"`")
			l.value = strings.Replace(l.value, "{}", defaultOf(key), 1)
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", l.what, l.value, strings.Join(settings, ", "), l.exceeded)
	}
	return text.String()
}

// words describes the values of a rule. They are empty for a form without words.
func words(rule models.Rule) string {
	schema := rule.Schema()
	says, _ := schema["description"].(string)
	text, isText := rule.(models.Text)
	switch {
	case schema["minimum"] != nil:
		return fmt.Sprintf("%v to %v", schema["minimum"], schema["maximum"])
	case says != "" || !isText || text.Match != nil:
		return says
	}
	limits := fmt.Sprintf("%d to %d characters", text.Min, text.Max)
	if text.NotBlank {
		limits += ", not only white space"
	}
	if limits += ", no control characters"; text.Lines {
		limits += " but line feeds and tabs"
	}
	return limits
}

// withEach describes a limit in all, and of each client.
func withEach(all, each int) string {
	return fmt.Sprintf("%s, and %d with one token", number(all), each)
}

// defaultOf returns the default of the setting key, with the unit that its form or its key implies.
func defaultOf(key string) string {
	text := config.SettingOf(key).Default
	if d, err := time.ParseDuration(text); err == nil {
		return seconds(d)
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil:
		log.Fatalf("the default of %s: %v", key, err)
	case strings.Contains(key, "bytes"):
		return size(n)
	}
	return number(n)
}

// number returns n with commas.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// size returns bytes in the largest unit that fits.
func size(bytes int) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if one := 1 << (30 - 10*i); bytes%one == 0 {
			return fmt.Sprintf("%d %s", bytes/one, unit)
		}
	}
	return number(bytes) + " bytes"
}

// seconds returns d in seconds, or in minutes if it is long and has no seconds.
func seconds(d time.Duration) string {
	if d >= 5*time.Minute && d%time.Minute == 0 {
		return fmt.Sprintf("%g min", d.Minutes())
	}
	return fmt.Sprintf("%g s", d.Seconds())
}
