// Package environments measures how long environments take to open.
package environments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/esc/wire"
)

// imported is how many environments the opened one imports. Each has a secret and values of the one before.
const imported = 20

// Open opens an environment with a new evaluator each time, and compares that with calls of the library in turn.
func Open(ctx context.Context, run *figures.Run) error {
	request, answers := definitions()
	library, err := startLibrary(ctx, request, answers)
	if err != nil {
		return err
	}
	var took, cpu, directly, directCPU []float64
	var memory int64
	for range figures.Pick(run, 200, 20) {
		one, err := open(ctx, run.Program("workflow-esc"), request, answers)
		if err != nil {
			return errors.Join(err, library.close())
		}
		took, cpu, memory = append(took, figures.Milliseconds(one.took)), append(cpu, figures.Milliseconds(one.cpu)), max(memory, one.memory)
		elapsed, used, err := library.open()
		if err != nil {
			return errors.Join(err, library.close())
		}
		directly, directCPU = append(directly, elapsed), append(directCPU, used)
	}
	if err := library.close(); err != nil {
		return err
	}
	what := fmt.Sprintf("an environment with %d imports", imported)
	run.Compare(what+" (other: the library in one process)", "ms", took, directly, figures.Goal{})
	run.Add("95th percentile beyond that of the library", "ms", []float64{figures.Quantile(took, 0.95) - figures.Quantile(directly, 0.95)}, figures.AtMost(30, false))
	run.Compare("CPU time (other: the library)", "ms", cpu, directCPU, figures.AtMost(60, true))
	run.Add("memory of the evaluator", "MB", []float64{figures.Megabytes(memory)}, figures.AtMost(40, true))
	return nil
}

// definitions returns a request, and what it imports by name.
func definitions() (wire.Request, map[string]string) {
	imports, list := map[string]string{}, make([]string, imported)
	for i := range imported {
		text := "values:\n"
		if i > 0 {
			text = fmt.Sprintf("imports: [bench/e%d]\n%s  before: ${value%d}\n", i-1, text, i-1)
		}
		text += fmt.Sprintf("  value%d: text\n  secret%d: {fn::secret: {ciphertext: %s}}\n  environmentVariables: {VARIABLE%d: '${secret%d}'}\n", i, i, ciphertext, i, i)
		for k := range 10 {
			text += fmt.Sprintf("  key%d_%d: a value with some text\n", i, k)
		}
		list[i] = fmt.Sprintf("bench/e%d", i)
		imports[list[i]] = text
	}
	return wire.Request{
		Op: wire.Open, Name: "bench/all", Milliseconds: time.Minute.Milliseconds(),
		Definition: []byte("imports: [" + strings.Join(list, ", ") + "]\nvalues: {last: '${secret0} ${context.pulumi.user}'}\n"),
		Context:    wire.Values{"pulumi": {Value: map[string]wire.Value{"user": {Value: "bench"}}}},
	}, imports
}

// ciphertext is a secret in the form of the library. The benchmark decrypts it to a constant.
const ciphertext = "ZXNjeAAAAAEAAAAAAAAAAAAAAAAAAAAAEmA7+g=="

// opened is what it took to open an environment.
type opened struct {
	took, cpu time.Duration
	memory    int64 // bytes
}

// open starts the program, answers what it asks, and waits for its end.
func open(ctx context.Context, program string, request wire.Request, environments map[string]string) (opened, error) {
	began := time.Now()
	command := exec.CommandContext(ctx, program)
	command.Env, command.Dir = []string{}, "/"
	in, err := command.StdinPipe()
	if err != nil {
		return opened{}, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return opened{}, err
	}
	if err := command.Start(); err != nil {
		return opened{}, fmt.Errorf("starting the evaluator: %w", err)
	}
	reader := wire.NewReader(out)
	send := func(message any) error {
		line, err := wire.Append(nil, message, wire.MaxMessage)
		if err == nil {
			_, err = in.Write(line)
		}
		return err
	}
	result, err := func() (*wire.Result, error) {
		var hello wire.Hello
		if err := reader.Read(&hello, wire.MaxMessage); err != nil {
			return nil, err
		}
		if err := send(request); err != nil {
			return nil, err
		}
		for {
			var message wire.Message
			if err := reader.Read(&message, wire.MaxResult); err != nil || message.Result != nil {
				return message.Result, err
			}
			answer := wire.Answer{Bytes: []byte("a secret")}
			if ask := message.Ask.Environment; ask != nil {
				answer = wire.Answer{Environment: &wire.EnvironmentAnswer{Name: ask.Name, Definition: []byte(environments[ask.Name])}}
			}
			if err := send(answer); err != nil {
				return nil, err
			}
		}
	}()
	took := time.Since(began)
	if err := errors.Join(err, command.Wait()); err != nil {
		return opened{}, fmt.Errorf("evaluating an environment: %w", err)
	}
	if result.Failed() {
		return opened{}, fmt.Errorf("evaluating an environment: %s %v", result.Error, result.Diagnostics)
	}
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return opened{}, errors.New("reading the memory of the evaluator: it is not known")
	}
	state := command.ProcessState
	return opened{took, state.UserTime() + state.SystemTime(), usage.Maxrss << 10}, nil
}

// library is a process that calls the library.
type library struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// startLibrary starts a process that opens the environment whenever it is asked to.
func startLibrary(ctx context.Context, request wire.Request, environments map[string]string) (*library, error) {
	root, err := lab.Root()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "go", "run", "-trimpath", "./internal/direct")
	command.Dir, command.Env = filepath.Join(root, "cmd", "workflow-esc"), append(os.Environ(), "CGO_ENABLED=0")
	command.Stderr = os.Stderr
	l := &library{command: command}
	if l.in, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.out = json.NewDecoder(out)
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting the library: %w", err)
	}
	if err := json.NewEncoder(l.in).Encode(map[string]any{"request": request, "environments": environments}); err != nil {
		return nil, errors.Join(err, l.close())
	}
	// The first call is later than others, because the program is compiled before.
	if _, _, err := l.open(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// open returns the elapsed time and the CPU time of one call, in milliseconds.
func (l *library) open() (took, cpu float64, err error) {
	var answer struct{ Took, CPU float64 }
	_, err = io.WriteString(l.in, "true\n")
	if err == nil {
		err = l.out.Decode(&answer)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("calling the library: %w", err)
	}
	return answer.Took, answer.CPU, nil
}

func (l *library) close() error {
	return errors.Join(l.in.Close(), l.command.Wait())
}
