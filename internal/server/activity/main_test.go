package activity_test

import (
	"os"
	"testing"

	"workflowagent/internal/dev/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }
