package controllers

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"plantstore/middleware"
)

// respond writes v as JSON. Text is not escaped for HTML.
func respond(c *gin.Context, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	c.Data(status, TypeJSON, body)
	return nil
}

func encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the response: %w", err)
	}
	return body, nil
}

// respondPage writes the first q.limit items, compressed for clients that accept it. If
// there are more, Link names the next page: the same path and query, after the id of the
// last item.
func respondPage[T any](c *gin.Context, q pageQuery, items []T, id func(T) any) error {
	if len(items) > q.limit {
		items = items[:q.limit]
		q.Set("after", fmt.Sprint(id(items[q.limit-1])))
		c.Header("Link", "<"+middleware.ClientPath(c, c.FullPath())+"?"+q.Encode()+`>; rel="next"`)
	}
	body, err := encode(items)
	if err != nil {
		return err
	}
	sendGzipped(c, body)
	return nil
}

// sendGzipped writes a body in JSON, compressed for clients that accept it.
func sendGzipped(c *gin.Context, body []byte) {
	if acceptsGzip(c) && len(body) >= gzipFrom {
		c.Header("Content-Encoding", "gzip")
		body = compress(body)
	}
	c.Data(http.StatusOK, TypeJSON, body)
}

// mapAll returns convert of each item.
func mapAll[A, B any](items []A, convert func(*A) B) []B {
	converted := make([]B, len(items))
	for i := range items {
		converted[i] = convert(&items[i])
	}
	return converted
}

// location returns the path of the row with id, for a request that creates it.
func location(c *gin.Context, id int64) string {
	return middleware.ClientPath(c, strings.TrimSuffix(c.FullPath(), "/:id")+"/"+strconv.FormatInt(id, 10))
}
