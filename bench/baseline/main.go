// Command baseline is what the service is measured against: the same operation
// as a team would write it by hand. Each of them answers POST /plants with a
// bearer token, logs one line for each request, and means by 200 that the row is
// on disk.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

// baselines returns the handler of each, by its name.
var baselines = map[string]func(databaseURL, token string) (http.Handler, error){
	"gin+gorm":        ginGorm,
	"gin+gorm, tuned": ginGormTuned,
	"net/http+pgx":    netHTTP,
	"no storage":      noStorage,
}

func main() {
	name := os.Args[1]
	newHandler, ok := baselines[name]
	if !ok {
		log.Fatalf("there is no baseline %q", name)
	}
	handler, err := newHandler(os.Getenv("DATABASE_URL"), os.Getenv("TOKEN"))
	if err != nil {
		log.Fatal(fmt.Errorf("%s: %w", name, err))
	}
	// Time-outs as the service has them: they cost each request something.
	server := &http.Server{
		Addr:              "127.0.0.1:" + os.Getenv("PORT"),
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
	}
	log.Fatal(server.ListenAndServe())
}
