package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/esc/wire"
)

// doubling returns a definition whose every value contains the one before twice.
func doubling(first, format string, times int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "values:\n  x0: %s\n", first)
	for i := range times {
		fmt.Fprintf(&b, "  x%d: "+format+"\n", i+1, fmt.Sprintf("${x%d}", i), fmt.Sprintf("${x%d}", i))
	}
	return b.String()
}

// TestHostileDefinitions evaluates definitions that are made to take memory and time. Each has to end with an
// error for its author.
func TestHostileDefinitions(t *testing.T) {
	t.Parallel()
	chain := &server{environments: map[string]string{}}
	for i := range wire.MaxDepth + 5 {
		chain.environments[fmt.Sprintf("a/e%d", i)] = fmt.Sprintf("imports: [a/e%d]", i+1)
	}
	wide := &server{environments: map[string]string{"a/all": ""}}
	for i := range wire.MaxImports {
		wide.environments[fmt.Sprintf("a/e%d", i)] = "values: {x: 1}"
		wide.environments["a/all"] += fmt.Sprintf("imports: [a/e%d, ", i)[map[bool]int{true: 0, false: len("imports: [")}[i == 0]:]
	}
	wide.environments["a/all"] += "]"
	stacks := &server{providers: map[string]func(map[string]wire.Value) (wire.Value, error){
		"deep": func(map[string]wire.Value) (wire.Value, error) {
			v := wire.Value{Value: json.Number("1")}
			for range wire.MaxNesting - 2 {
				v = wire.Value{Value: []wire.Value{v}}
			}
			return wire.Value{Value: map[string]wire.Value{"deep": v}}, nil
		},
	}}
	const stopped = "failed: evaluating the environment was stopped: it needs "
	var names strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&names, " k%x: 1\n", i)
	}
	for name, one := range map[string]struct {
		server     *server
		definition string
		limits     string
		want       string
		mayEnd     bool
	}{
		"a million keys":        {definition: "values:\n" + strings.Repeat("k:\n", 1_000_000), want: "failed: the definition has 3000008 bytes"},
		"many keys":             {definition: "values:\n" + names.String(), limits: "32 10s", mayEnd: true, want: stopped + "more than 32 MiB of memory"},
		"the same key":          {definition: "values:\n" + strings.Repeat(" k: 1\n", 5_000), want: "error: duplicate key"},
		"an interpolation bomb": {definition: doubling(strings.Repeat("x", 1000), `"%s%s"`, 40), limits: "64 10s", mayEnd: true, want: stopped},
		"a list bomb":           {definition: doubling("1", `["%s", "%s"]`, 40), limits: "32 10s", mayEnd: true, want: stopped + "more than 32 MiB of memory"},
		"a JSON bomb":           {definition: doubling("1", `{fn::toJSON: ["%s", "%s"]}`, 40), limits: "64 10s", mayEnd: true, want: stopped},
		"very nested lists":     {definition: "values: {x: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}", limits: "256 200ms", want: stopped + "a processor for more than 200ms"},
		"many values":           {definition: "values: {x: {fn::fromJSON: '[1" + strings.Repeat(",1", wire.MaxValues) + "]'}}", want: "failed: the environment has more than 100000 values"},
		"nested lists":          {definition: "values: {x: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "}", want: "failed: the environment's values are nested more than 100 deep"},
		"deeply nested lists":   {definition: "values: {x: " + strings.Repeat("[", 400_000), want: "error: "},
		"a long chain":          {server: chain, definition: "imports: [a/e0]", want: "error: environments import each other more than 20 deep"},
		"many imports":          {server: wide, definition: "imports: [a/all]", want: "error: the environment imports more than 100 environments"},
		"many imports at once":  {server: wide, definition: "imports: [" + strings.Repeat("a/e1, ", wire.MaxImports+1) + "]", want: "failed: the definition imports 101 environments"},
		"infinite number":       {definition: "values: {x: .inf}", want: "failed: the number +Inf cannot be a value"},
		"no number":             {definition: "values: {x: [.nan]}", want: "failed: the number NaN cannot be a value"},
		"an endless schema":     {definition: "values: {x: {fn::validate: {schema: {$defs: {a: {$ref: '#/$defs/a'}}, $ref: '#/$defs/a'}, value: 1}}}", mayEnd: true, want: "nothing"},
		"deep output":           {server: stacks, definition: "values: {x: {y: {fn::open::deep: {stack: s}}}}", want: "failed: the environment's values are nested more than 100 deep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := one.server
			if s == nil {
				s = &server{}
			}
			limits := one.limits
			if limits == "" {
				limits = usualLimits
			}
			result, err := s.askWithin(t, limits, wire.Request{Op: wire.Open, Name: "a/b", Definition: []byte(one.definition)})
			if err != nil {
				// The runtime ends the program if the kernel refuses memory, or for endless recursion.
				if !one.mayEnd || !strings.Contains(err.Error(), "exit status 2") {
					t.Error(err)
				}
				return
			}
			if got := summaries(result); !strings.HasPrefix(got, one.want) || !result.Failed() || result.Fault {
				t.Errorf("%.300s, want %s", got, one.want)
			}
		})
	}
}

// TestDeadline waits for an answer that does not come.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := &server{silent: true}
	result := s.ask(t, wire.Request{Op: wire.Open, Definition: []byte("imports: [a/b]"), Milliseconds: 50})
	if got := summaries(result); got != "failed: evaluating the environment was stopped: it takes longer than 50ms" {
		t.Error(got)
	}
}

// TestLongRequest sends a line that is too long, and one that is no message.
func TestLongRequest(t *testing.T) {
	t.Parallel()
	for _, line := range []string{strings.Repeat("x", wire.MaxMessage+10), "{}}\n", "[]\n"} {
		p := start(t, usualLimits)
		_, _ = p.in.Write([]byte(line))
		_ = p.in.Close()
		var message wire.Message
		if err := p.out.Read(&message, wire.MaxMessage); err == nil {
			t.Errorf("%.10s: %+v", line, message)
		}
		if err := p.command.Wait(); err == nil || p.command.ProcessState.Sys().(syscall.WaitStatus).ExitStatus() != 1 {
			t.Errorf("%.10s: %v", line, err)
		}
	}
}
