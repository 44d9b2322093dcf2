package controllers

import (
	"os"
	"testing"

	"github.com/gin-gonic/gin"

	"plantstore/database/dbtest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(dbtest.Main(m))
}
