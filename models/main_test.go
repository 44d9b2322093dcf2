package models_test

import (
	"os"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/models"
)

// errorOf returns err, which follows the outcome of a write.
func errorOf[T any](_ models.Outcome[T], err error) error { return err }

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }
