package languagehost

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"workflowagent/internal/dev/must"
)

// cli is the pulumi CLI: a client of the host.
type cli struct {
	address string
	client  *http.Client
	stdin   *os.File // the end of the host's standard input that the CLI holds
	ended   chan error
}

func start(t *testing.T) *cli {
	t.Helper()
	stdin, write, err := os.Pipe()
	must.OK(t, err)
	output, stdout := io.Pipe()
	c := &cli{stdin: write, ended: make(chan error, 1)}
	go func() { c.ended <- Serve(context.WithoutCancel(t.Context()), stdin, stdout) }()
	port := must.Get(bufio.NewReader(output).ReadString('\n'))(t)
	c.address = "http://127.0.0.1:" + strings.TrimSpace(port)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	c.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		c.client.CloseIdleConnections()
		_ = write.Close()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
		_ = stdin.Close()
	})
	return c
}

// call starts a call and returns its answer, whose trailers follow the body.
func (c *cli) call(ctx context.Context, t *testing.T, method string, request []byte) *http.Response {
	t.Helper()
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	r := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, c.address+service+method, bytes.NewReader(body)))(t)
	r.Header.Set("Content-Type", "application/grpc")
	response := must.Get(c.client.Do(r))(t)
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// answer returns the messages of a call, and its status.
func (c *cli) answer(t *testing.T, method string, request []byte) (messages [][]byte, status string) {
	t.Helper()
	response := c.call(t.Context(), t, method, request)
	for {
		message, err := next(response.Body)
		if errors.Is(err, io.EOF) {
			break
		}
		must.OK(t, err)
		messages = append(messages, message)
	}
	text := must.Get(url.PathUnescape(response.Trailer.Get("Grpc-Message")))(t)
	return messages, strings.TrimSpace(response.Trailer.Get("Grpc-Status") + " " + text)
}

func next(body io.Reader) ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(body, header[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint32(header[1:]))
	_, err := io.ReadFull(body, message)
	return message, err
}

// pack makes a pack whose program is a script of the shell.
func pack(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "policy"), []byte("#!/bin/sh\n"+script), 0o755))
	return dir
}

func programInfo(dir string) []byte {
	return appendText(appendText(appendText(nil, 1, "/root"), 2, dir), 3, ".")
}

func runPlugin(dir, work string) []byte {
	message := appendText(nil, 1, work)
	message = appendText(appendText(message, 3, "127.0.0.1:1234"), 3, "two words")
	message = appendText(message, 4, "NAME=value")
	message = appendText(message, 5, programInfo(dir))
	message = appendText(message, 6, analyzer)
	return appendNumber(message, 8, 1) // an unknown field
}

func TestRunPlugin(t *testing.T) {
	c := start(t)
	work := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	dir := pack(t, `echo "$# $1 $2 $NAME $HOME $PWD"; echo warning >&2; exit 3`)
	messages, status := c.answer(t, "RunPlugin", runPlugin(dir, work))
	out := map[protowire.Number]string{}
	for _, message := range messages {
		number, kind, n := protowire.ConsumeTag(message)
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[n:])
			out[number] += string(value)
		} else {
			value, _ := protowire.ConsumeVarint(message[n:])
			out[number] = fmt.Sprint(value)
		}
	}
	want := map[protowire.Number]string{
		fieldStdout: "2 127.0.0.1:1234 two words value  " + work + "\n", fieldStderr: "warning\n", fieldExitCode: "3",
	}
	if status != "0" || fmt.Sprint(out) != fmt.Sprint(want) {
		t.Errorf("%q, %q, want %q", status, out, want)
	}
}

func TestAnswers(t *testing.T) {
	c := start(t)
	complete, incomplete := pack(t, ""), t.TempDir()
	install := func(dir string) []byte { return appendText(nil, 3, programInfo(dir)) }
	missing := fmt.Sprintf("2 the policy pack has no program for this machine: it needs the file policy-%s-%s or policy", runtime.GOOS, runtime.GOARCH)
	for _, tt := range []struct {
		method  string
		request []byte
		status  string
		answers int
	}{
		{"Handshake", nil, "0", 1},
		{"GetPluginInfo", nil, "0", 1},
		{"GetRequiredPackages", install(complete), "0", 1},
		{"InstallDependencies", install(complete), "0", 0},
		{"InstallDependencies", install(incomplete), missing, 0},
		{"InstallDependencies", appendText(nil, 1, complete), "0", 0}, // of older CLIs
		{"RunPlugin", runPlugin(incomplete, "/"), missing, 0},
		{"RunPlugin", appendText(appendText(nil, 5, programInfo(complete)), 6, "resource"), "12 runtime: executable is the runtime of policy packs, not of plugins of the kind resource", 0},
		{"Run", nil, "12 runtime: executable is the runtime of policy packs; Pulumi.yaml must name the program's language", 0},
		{"GeneratePackage", nil, "12 pulumi-language-executable has no method GeneratePackage", 0},
		{"RunPlugin", []byte{0x2a, 0xff}, "3 parsing the request: unexpected EOF", 0},
		{"RunPlugin", appendText(nil, 5, []byte{0xff}), "3 parsing the request: unexpected EOF", 0},
	} {
		messages, status := c.answer(t, tt.method, tt.request)
		if status != tt.status || len(messages) != tt.answers {
			t.Errorf("%s: %q with %d messages, want %q with %d", tt.method, status, len(messages), tt.status, tt.answers)
		}
	}
}

// waiting returns a pack that waits for an interrupt, and the pipe to which it then writes.
func waiting(t *testing.T) (dir string, interrupted *os.File) {
	t.Helper()
	pipe := filepath.Join(t.TempDir(), "interrupted")
	must.OK(t, unix.Mkfifo(pipe, 0o600))
	interrupted = must.Get(os.OpenFile(pipe, os.O_RDWR, 0))(t)
	t.Cleanup(func() { _ = interrupted.Close() })
	// The shell waits without a child process.
	return pack(t, "mkfifo $0.never; trap 'echo yes >"+pipe+"; exit 1' INT; echo runs; read -r line <>$0.never"), interrupted
}

// TestCancel checks that a pack is interrupted when the CLI ends the call.
func TestCancel(t *testing.T) {
	c := start(t)
	dir, interrupted := waiting(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	response := c.call(ctx, t, "RunPlugin", runPlugin(dir, "/"))
	_ = must.Get(next(response.Body))(t)
	cancel()
	_ = must.Get(interrupted.Read(make([]byte, 1)))(t)
}

// TestKilledCLI checks that host and pack end with a CLI that sends no signal.
func TestKilledCLI(t *testing.T) {
	c := start(t)
	dir, interrupted := waiting(t)
	response := c.call(t.Context(), t, "RunPlugin", runPlugin(dir, "/"))
	_ = must.Get(next(response.Body))(t)
	must.OK(t, c.stdin.Close())
	_ = must.Get(interrupted.Read(make([]byte, 1)))(t)
}

func TestFind(t *testing.T) {
	specific := fmt.Sprintf("policy-%s-%s", runtime.GOOS, runtime.GOARCH)
	for name, tt := range map[string]struct {
		files map[string]os.FileMode
		want  string
	}{
		"any machine":    {map[string]os.FileMode{"policy": 0o755, "policy-plan9-mips": 0o755}, "policy"},
		"this machine":   {map[string]os.FileMode{"policy": 0o755, specific: 0o755}, specific},
		"other machine":  {map[string]os.FileMode{"policy-plan9-mips": 0o755}, "has no program for this machine"},
		"not executable": {map[string]os.FileMode{"policy": 0o644}, "policy is not an executable file"},
		"directory":      {map[string]os.FileMode{"policy": os.ModeDir | 0o755}, "policy is not an executable file"},
	} {
		dir := t.TempDir()
		for file, mode := range tt.files {
			if mode.IsDir() {
				must.OK(t, os.Mkdir(filepath.Join(dir, file), mode.Perm()))
				continue
			}
			must.OK(t, os.WriteFile(filepath.Join(dir, file), nil, mode))
		}
		got, err := find(dir)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasSuffix(got, tt.want) && !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(runPlugin("/pack", "/"))
	f.Add(appendText(nil, 3, programInfo("/pack")))
	f.Add([]byte{0x2a, 0x80})
	f.Fuzz(func(t *testing.T, message []byte) {
		_, _ = parseRun(message)
		_, _ = parseInstall(message)
	})
}
