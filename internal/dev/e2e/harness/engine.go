package harness

import (
	"context"
	"os"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// StubVersion begins the shell script of a stub of pulumi that counts its runs. A runner can ask for the
// version first, which is no run of an operation.
const StubVersion = "#!/bin/sh\n[ \"$1\" != version ] || exit 0\n"

// YamlProgram is a program with one resource of the lab's provider.
const YamlProgram = `name: box
runtime: yaml
resources:
  value:
    type: lab:Random
outputs:
  hex: ${value.hex}
`

// StartEngineSite is like [StartSite], with a Docker Engine and an executor image, also for evaluations. listen
// chooses the server's address from the engine.
func StartEngineSite(t *testing.T, listen func(*lab.Engine) string, serverArgs ...string) (w *Site, engine *lab.Engine, image string) {
	t.Helper()
	if reason, ok := lab.EngineAvailable(); !ok {
		t.Skip(reason)
	}
	_, tools := Programs(t)
	return StartEngineSiteWith(t, must.Get(lab.NewExecutorImage(t.Context(), tools))(t), listen, serverArgs...)
}

// StartEngineSiteWith is like [StartEngineSite], with another image.
func StartEngineSiteWith(t *testing.T, jobs *lab.Image, listen func(*lab.Engine) string, serverArgs ...string) (w *Site, engine *lab.Engine, image string) {
	t.Helper()
	if reason, ok := lab.EngineAvailable(); !ok {
		t.Skip(reason)
	}
	// The engine's sockets must have short paths.
	dir := must.Get(os.MkdirTemp("", "e2e-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine = must.Get(lab.NeedEngine(t.Context(), dir))(t)
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	image = must.Get(jobs.Load(t.Context(), engine.Host))(t)
	w = StartSite(t, listen(engine), append([]string{"--default-image", image}, serverArgs...)...)
	t.Cleanup(func() { Leftovers(context.Background(), t, engine) }) // while the agents still run
	return w, engine, image
}

// OnLoopback makes [StartEngineSite]'s server listen on loopback.
func OnLoopback(*lab.Engine) string { return "" }

// OnBridge makes [StartEngineSite]'s server listen on the engine's bridge.
func OnBridge(e *lab.Engine) string { return e.BridgeIP.String() }
