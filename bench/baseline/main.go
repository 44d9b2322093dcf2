// Command baseline runs one of the programs that the service is compared with, as
// a team would write them by hand. Each requires a bearer token, logs a line per
// request, with the fields of the service's line (gin+gorm: Gin's own line), and
// responds with 200 only after the row is durable.
package main

import (
	"log"
	"net/http"
	"os"
	"time"
)

var baselines = map[string]func(databaseURL, token string) (http.Handler, error){
	"gin+gorm":       ginGorm,
	"tuned gin+gorm": tunedGinGorm,
	"net/http+pgx":   netHTTP,
}

// tokenName stands for the token in the access log.
const tokenName = "static:1"

func main() {
	newHandler, ok := baselines[os.Args[1]]
	if !ok {
		log.Fatalf("unknown baseline %q", os.Args[1])
	}
	handler, err := newHandler(os.Getenv("DATABASE_URL"), os.Getenv("TOKEN"))
	if err != nil {
		log.Fatal(err)
	}
	// The timeouts of the service, because they take time in each request.
	server := &http.Server{
		Addr: "127.0.0.1:" + os.Getenv("PORT"), Handler: handler,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
	log.Fatal(server.ListenAndServe())
}
