// Command direct measures how long the evaluator's library takes by itself, for "make bench": it opens the same
// environment once for each line that it reads, knows all answers, and prints the elapsed time and the CPU time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/esc"
	"github.com/pulumi/pulumi/sdk/v3/go/common/esc/eval"

	"workflowagent/cmd/workflow-esc/internal/sandbox"
	"workflowagent/internal/esc/wire"
)

func main() {
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "direct:", err)
		os.Exit(1)
	}
}

func measure() error {
	var input struct {
		Request      wire.Request
		Environments known
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	if err := in.Decode(&input); err != nil {
		return fmt.Errorf("reading what to evaluate: %w", err)
	}
	for {
		var again bool
		if err := in.Decode(&again); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("waiting: %w", err)
		}
		began, used := time.Now(), sandbox.Used()
		if err := open(input.Request, input.Environments); err != nil {
			return err
		}
		if err := out.Encode(map[string]float64{"took": milliseconds(time.Since(began)), "cpu": milliseconds(sandbox.Used() - used)}); err != nil {
			return err
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func open(request wire.Request, environments known) error {
	user := esc.NewValue(map[string]esc.Value{"user": esc.NewValue("bench")})
	execution, err := esc.NewExecContext(map[string]esc.Value{"pulumi": user})
	if err != nil {
		return err
	}
	declared, diagnostics, err := eval.LoadYAMLBytes(request.Name, request.Definition)
	if err != nil {
		return err
	}
	environment, more := eval.EvalEnvironment(context.Background(), request.Name, declared, secret{}, nil, environments, execution,
		eval.EvalOptions{TraceMode: eval.TraceModeNone})
	if diagnostics.Extend(more...); len(diagnostics) > 0 {
		return diagnostics
	}
	_, err = json.Marshal(environment.Properties)
	return err
}

// known are definitions by name.
type known map[string]string

// AuthorizeImport implements [eval.EnvironmentLoader].
func (known) AuthorizeImport(context.Context, string, string, bool) error { return nil }

// LoadEnvironment implements [eval.EnvironmentLoader].
func (k known) LoadEnvironment(_ context.Context, name string) ([]byte, string, eval.Decrypter, error) {
	return []byte(k[name]), name, secret{}, nil
}

type secret struct{}

// Decrypt implements [eval.Decrypter].
func (secret) Decrypt(context.Context, []byte) ([]byte, error) { return []byte("a secret"), nil }
