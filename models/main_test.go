package models_test

import (
	"os"
	"testing"

	"plantstore/database/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }
