// The Plant Store Service: an authenticated HTTP API that stores plants.
package main

import (
	"os"

	"plantstore/cmd"
)

// @title			Plant Store
// @version		1.0.0
// @description	Stores plants durably: a 200 means that the data is on disk.
// @description
// @description	Every unsuccessful response has an `Error` as its body, with a stable code, except when Go's HTTP server rejects the request, for example because its headers are too large.
// @license.name	MIT
// @externalDocs.description	The API, page by page
// @externalDocs.url	/docs/api.md
// @servers.url	/
// @tag.name		tokens
// @tag.description	The bearer tokens that the service has issued, for clients with the scope admin
// @security		BearerAuth
// @securityDefinitions.bearerauth	BearerAuth
// @description	A token that the operator of the service has issued, or a JWT of the identity provider that the service trusts: the bare token, without the word Bearer. Each operation names the scope that it needs. A development server without configured tokens prints its token at each start, and keeps it in the file data/dev-token.
func main() {
	os.Exit(cmd.Main(os.Args[1:]))
}
