package faults

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// secrets are planted values by the names in findings.
type secrets struct {
	t *testing.T

	mu    sync.Mutex
	forms map[string]string // encoded forms, and the secret of each
	found map[string]bool   // reported findings
}

func newSecrets(t *testing.T) *secrets {
	return &secrets{t: t, forms: map[string]string{}, found: map[string]bool{}}
}

// plant adds a value, which must be long enough not to occur by chance.
func (s *secrets) plant(name, value string) {
	s.t.Helper()
	if len(value) < 16 {
		s.t.Fatalf("the secret %q is too short to search for", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(form, text string) { s.forms[text] = cmp.Or(s.forms[text], name+form) }
	add("", value)
	for line := range strings.SplitSeq(strings.TrimSpace(value), "\n") {
		if len(line) >= 32 {
			add(" (a line of it)", line)
		}
	}
	add(" in hexadecimal", hex.EncodeToString([]byte(value)))
	add(" in a URL", url.QueryEscape(value))
	add(" in a path", url.PathEscape(value))
	if quoted, err := json.Marshal(value); err == nil {
		add(" in JSON", string(quoted[1:len(quoted)-1]))
	}
	for offset := range 3 { // any position in a longer text
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, offset), value...))
			add(" in base64", text[offset+1:len(text)-2])
		}
	}
}

// look reports every secret in content whose name is not allowed there.
func (s *secrets) look(where string, content []byte, allowed ...string) (found bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
search:
	for text, name := range s.forms {
		if !bytes.Contains(content, []byte(text)) {
			continue
		}
		for _, ok := range allowed {
			if strings.HasPrefix(name, ok) {
				continue search
			}
		}
		found = true
		if finding := where + " holds the " + name; !s.found[finding] {
			s.found[finding] = true
			s.t.Error(finding)
		}
	}
	return found
}

// secretPlace is a file or directory that may hold secrets if only its owner can read it.
type secretPlace struct {
	glob string // of the path below the searched directory, up to its end
	of   string // beginning of the secrets' names
}

// lookInto searches all files below dir. Allowed places must be readable by their owner only.
func (s *secrets) lookInto(dir string, allowed ...secretPlace) {
	s.t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // jobs come and go
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		var names []string
		for _, a := range allowed {
			if ok, _ := filepath.Match(a.glob, rel); ok {
				names = append(names, a.of)
			}
		}
		s.look(path, content, names...)
		if info, err := e.Info(); len(names) > 0 && err == nil && info.Mode().Perm()&0o077 != 0 {
			s.t.Errorf("%s may hold secrets and has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		s.t.Error(err)
	}
}

// watched are the secrets that processes may receive in their environment from their parent, by
// command line. Before exec, a child still has its parent's command line.
type watched map[string][]string

// watch searches the arguments of all processes, and the environments except those of the job's
// steps, until stop is called. Only the steps have jobID, the deployment's id, in their
// environment.
func (s *secrets) watch(jobID string, given watched) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			eachProcess(func(pid int, args, env []byte) {
				name := strings.ReplaceAll(strings.TrimRight(string(args[:min(len(args), 60)]), "\x00"), "\x00", " ")
				s.look(fmt.Sprintf("the command line of %s", name), args)
				switch {
				case pid == os.Getpid(), isJobs(env, jobID):
				case bytes.Contains(env, []byte("GATEWAY_INTERFACE=")): // the git server's, which receives the password
				case bytes.Contains(env, []byte("GIT_ALLOW_PROTOCOL=")): // the job's git, which accepts a proxy in no other way
					s.look(fmt.Sprintf("the environment of %s", name), env, "proxy password")
				default:
					s.look(fmt.Sprintf("the environment of %s", name), env, given[string(args)]...)
				}
			})
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(done)
		<-ended
	})
	s.t.Cleanup(stop) // if the test aborts
	return stop
}

func isJobs(env []byte, deploymentID string) bool {
	return bytes.Contains(env, []byte("PULUMI_CI_BUILD_ID="+deploymentID+"\x00"))
}

func eachProcess(visit func(pid int, args, env []byte)) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, env := readOnce(filepath.Join("/proc", e.Name(), "cmdline")), readOnce(filepath.Join("/proc", e.Name(), "environ"))
		visit(pid, args, env)
	}
}

// readOnce reads a file of /proc with one call: if the process ended between two calls, only the
// beginning would be read.
func readOnce(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	content := make([]byte, 256<<10)
	n, _ := f.Read(content)
	return content[:n]
}

func variableOf(deploymentID, name string) (value string, pid int) {
	eachProcess(func(p int, _, env []byte) {
		if !isJobs(env, deploymentID) {
			return
		}
		for entry := range bytes.SplitSeq(env, []byte{0}) {
			if v, ok := strings.CutPrefix(string(entry), name+"="); ok {
				value, pid = v, p
			}
		}
	})
	return value, pid
}
