package recipe

import (
	"os"
	"testing"

	"plantstore/tests/service"
)

func TestMain(m *testing.M) { os.Exit(service.Main(m)) }
