package middleware

import "github.com/gin-gonic/gin"

// BasePath sets the path that a proxy has removed from requests, such as /store. It is
// empty without such a proxy.
func BasePath(path string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if path != "" {
			c.Set(basePathKey, path)
		}
	}
}

// ClientPath returns path as the client of c's request must send it.
func ClientPath(c *gin.Context, path string) string { return c.GetString(basePathKey) + path }
