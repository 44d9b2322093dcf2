// The Plant Store Service: an authenticated HTTP API that stores plants.
package main

import (
	"os"

	"plantstore/cmd"
)

// @title			Plant Store
// @version		1.0.0
// @description	Stores plants, durably: what is answered with 200 is on disk.
// @description
// @description	Every answer that is not a success has an `Error` for its body. Its code is stable:
// @description
// @description	| error | status | when |
// @description	| --- | --- | --- |
// @description	| 40001 | 400 | the body is not one well-formed JSON object in UTF-8; the message gives the byte |
// @description	| 40002 | 400 | a field is unknown; names are case-sensitive |
// @description	| 40003 | 400 | a field is given twice |
// @description	| 40004 | 400 | a required field is missing, or a field has the wrong JSON type, null included |
// @description	| 40005 | 400 | an id is not an int64 integer literal |
// @description	| 40006 | 400 | a text is outside its limits, or a value is not one that its field may have |
// @description	| 40007 | 400 | a parameter of the path or the query, or a conditional header, is not valid |
// @description	| 41301 | 400 | the body is too large: more than 64 KiB, or 1 GiB of an import and 64 KiB of a line, where the operator has set nothing else |
// @description	| 41501 | 400 | the Content-Type is not JSON in UTF-8, or what the operation takes instead, or there is a Content-Encoding |
// @description	| 40101 | 401 | no bearer token |
// @description	| 40102 | 401 | the bearer token is not valid |
// @description	| 40301 | 403 | the bearer token lacks the scope that the operation needs |
// @description	| 40401 | 404 | no such plant |
// @description	| 40402 | 404 | no such path |
// @description	| 40403 | 404 | no such token, or it was revoked before |
// @description	| 40501 | 405 | the path has no such method; the Allow header has those there are |
// @description	| 40901 | 409 | the id is taken by a plant with other content, which is left as it is |
// @description	| 40902 | 409 | the id is taken by a plant with the same content: an earlier attempt has stored it |
// @description	| 41201 | 412 | If-Match or If-None-Match does not hold; nothing was written |
// @description	| 42901 | 429 | too many requests of this token or this address, or too many wrong tokens; Retry-After says when to try again |
// @description	| 50001 | 500 | a fault of the service; the message has the request id |
// @description	| 50301 | 503 | too much is waiting; nothing was stored: try again later |
// @description	| 50302 | 503 | the database, or the keys of JWTs, cannot be reached in time; the outcome of a write is unknown: retry with the same id |
// @license.name	MIT
// @license.url	https://opensource.org/license/mit
// @servers.url	/
// @tag.name		plants
// @tag.description	The plants in the store
// @tag.name		tokens
// @tag.description	The bearer tokens that the service has issued, for bearers of the scope admin
// @security		BearerAuth
// @securityDefinitions.bearerauth	BearerAuth
// @description	A token that the operator of the service has issued, or a JWT of the identity provider that it trusts: the bare token, without the word Bearer. Each operation names the scope that it needs: plants:read, plants:write, or admin, which implies the others.
func main() {
	os.Exit(cmd.Main(os.Args[1:]))
}
