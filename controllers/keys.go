package controllers

import (
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

// rowKey is the type of a resource's keys. The rule of a [models.ID] is [models.UUID].
type rowKey interface{ int64 | models.ID }

// keyOf returns the key that a client has sent for a new row, or a new key. Each int64 is required.
func keyOf[K rowKey](sent *K) K {
	if sent == nil {
		sent = new(K)
		if id, ok := any(sent).(*models.ID); ok {
			*id = models.NewID()
		}
	}
	return *sent
}

// parseKey parses a key in the parameter name.
func parseKey[K rowKey](name, text string) (key K, err error) {
	switch key := any(&key).(type) {
	case *int64:
		*key, err = parseInt64(codeParameter, name, text)
	case *models.ID:
		if *key, err = models.ID(text), models.UUID().Check(name, text); err != nil {
			err = problemf(codeParameter, "%v", err)
		}
	}
	return key, err
}

// parseTarget returns the key of the row that a request writes, and the condition.
func (r *Resource[T, K, C]) parseTarget(c *gin.Context) (K, models.Condition, error) {
	key, err := parseKey[K]("id", c.Param("id"))
	if err != nil {
		return key, models.Condition{}, err
	}
	condition, err := parseCondition(c)
	return key, condition, err
}

// appendKey appends the form of key in paths and parameters.
func appendKey[K rowKey](to []byte, key K) []byte {
	switch key := any(key).(type) {
	case int64:
		return strconv.AppendInt(to, key, 10)
	case models.ID:
		return append(to, key...)
	}
	return to
}

// location returns the path of the row with key, for a request that creates it.
func location[K rowKey](c *gin.Context, key K) string {
	path := append(make([]byte, 0, 64), strings.TrimSuffix(c.FullPath(), "/:id")+"/"...)
	return middleware.ClientPath(c, string(appendKey(path, key)))
}
