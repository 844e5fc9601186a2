package e2e

import (
	"context"
	"os"
	"testing"

	"workflowagent/internal/dev/lab"
)

// yamlProgram is a program with one resource of our provider.
const yamlProgram = `name: box
runtime: yaml
resources:
  value:
    type: lab:Random
outputs:
  hex: ${value.hex}
`

// engineWorld is a world with a Docker Engine and an executor image. listen
// chooses the server's address from the engine.
func engineWorld(t *testing.T, listen func(*lab.Engine) string, serverArgs ...string) (w *world, engine *lab.Engine, image string) {
	t.Helper()
	if reason, ok := lab.EngineAvailable(); !ok {
		t.Skip(reason)
	}
	// The engine's sockets must have short paths.
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine, err = lab.NeedEngine(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	_, tools := programs(t)
	image, err = lab.ExecutorImage(t.Context(), engine.Host, tools)
	if err != nil {
		t.Fatal(err)
	}
	w = testWorld(t, listen(engine), serverArgs...)
	t.Cleanup(func() { leftovers(context.Background(), t, engine) }) // while the agents still run
	return w, engine, image
}

func onLoopback(*lab.Engine) string { return "" }
func onBridge(e *lab.Engine) string { return e.BridgeIP.String() }
