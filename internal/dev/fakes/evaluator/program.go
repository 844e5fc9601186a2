package evaluator

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"workflowagent/internal/esc/wire"
)

// Serve serves one request if this process is the program of a server: the test binary under another name. Tests call it first.
func Serve() bool {
	is := filepath.Base(os.Args[0]) == wire.Program
	if is {
		serve(os.Stdin, os.Stdout)
	}
	return is
}

// Install puts the program where a server in the test's process expects it: next to the test binary. Only packages that call
// [Serve] may call it.
var Install = sync.OnceValue(func() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return os.Symlink(self, filepath.Join(filepath.Dir(self), wire.Program))
})

// program serves one request. It knows imports, and values in lines such as "  a.b: text", "  c: {fn::secret: text}" and
// "  d: {fn::secret: {ciphertext: …}}". A line with BROKEN has an error.
type program struct {
	in  *wire.Reader
	out *json.Encoder
	req wire.Request
}

func serve(in io.Reader, out io.Writer) {
	p := &program{in: wire.NewReader(in), out: json.NewEncoder(out)}
	_ = p.out.Encode(wire.Hello{Protocol: wire.Protocol, Sandbox: true})
	if p.in.Read(&p.req, wire.MaxMessage) != nil {
		return
	}
	result := &wire.Result{}
	definition := string(p.req.Definition)
	switch p.req.Op {
	case wire.Encrypt:
		p.values(p.req.Name, definition, true, result)
		text := plain.ReplaceAllStringFunc(definition, func(text string) string {
			answer := p.ask(wire.Ask{Encrypt: &wire.EncryptAsk{Plaintext: []byte(plain.FindStringSubmatch(text)[1])}})
			return "fn::secret: {ciphertext: " + base64.StdEncoding.EncodeToString(answer.Bytes) + "}"
		})
		result.Definition = []byte(text)
	case wire.Check, wire.Open:
		result.Environment = &wire.Environment{Properties: p.values(p.req.Name, definition, true, result)}
	case wire.Decrypt:
		result.Definition = p.req.Definition
	}
	_ = p.out.Encode(wire.Message{Result: result})
}

func (p *program) ask(ask wire.Ask) (answer wire.Answer) {
	_ = p.out.Encode(wire.Message{Ask: &ask})
	if p.in.Read(&answer, wire.MaxMessage) != nil {
		os.Exit(1)
	}
	return answer
}

var valueLine = regexp.MustCompile(`^  ([A-Za-z0-9_.]+): (.*)$`)

// values evaluates a definition.
func (p *program) values(name, definition string, root bool, result *wire.Result) wire.Values {
	values := wire.Values{}
	number := 0
	for line := range strings.Lines(definition) {
		line = strings.TrimRight(line, "\n")
		number++
		if strings.Contains(line, "BROKEN") {
			result.Diagnostics = append(result.Diagnostics, wire.Diagnostic{Summary: "unknown word in " + line, Severity: wire.Error, Range: &wire.Range{
				Environment: name, Begin: wire.Position{Line: number, Column: 3}, End: wire.Position{Line: number, Column: 9},
			}})
			continue
		}
		if m := item.FindStringSubmatch(line); m != nil {
			result.Imports = append(result.Imports, m[1])
			answer := p.ask(wire.Ask{Environment: &wire.EnvironmentAsk{Name: m[1], Importer: name, Root: root}})
			if answer.Environment == nil {
				result.Diagnostics = append(result.Diagnostics, wire.Diagnostic{Summary: answer.Error, Severity: wire.Error})
				continue
			}
			maps.Copy(values, p.values(answer.Environment.Name, string(answer.Environment.Definition), false, &wire.Result{}))
		}
		if m := valueLine.FindStringSubmatch(line); m != nil {
			put(values, strings.Split(m[1], "."), p.value(name, root, m[2]))
		}
	}
	return values
}

func (p *program) value(name string, root bool, text string) wire.Value {
	v := wire.Value{Value: text}
	if p.req.Details {
		v.Trace = fmt.Appendf(nil, `{"def":{"environment":%q}}`, name)
	}
	if m := sealed.FindStringSubmatch(text); m != nil {
		v.Secret, v.Unknown = true, p.req.Op != wire.Open
		v.Value = nil
		if !v.Unknown {
			ciphertext, _ := base64.StdEncoding.DecodeString(m[1])
			v.Value = string(p.ask(wire.Ask{Decrypt: &wire.DecryptAsk{Environment: name, Root: root, Ciphertext: ciphertext}}).Bytes)
		}
	} else if m := plain.FindStringSubmatch(text); m != nil {
		v.Value, v.Secret = m[1], true
	}
	return v
}

func put(values map[string]wire.Value, path []string, v wire.Value) {
	if len(path) == 1 {
		values[path[0]] = v
		return
	}
	inner, _ := values[path[0]].Value.(map[string]wire.Value)
	if inner == nil {
		inner = map[string]wire.Value{}
	}
	put(inner, path[1:], v)
	values[path[0]] = wire.Value{Value: inner}
}
