// Package middleware holds what happens to every request before and after its
// controller. A middleware that refuses a request records an error and stops;
// the controllers' error handler turns it into the answer.
package middleware

import "github.com/gin-gonic/gin"

// Fail ends the request with err, which the controllers' error handler answers.
func Fail(c *gin.Context, err error) {
	_ = c.Error(err)
	c.Abort()
}
