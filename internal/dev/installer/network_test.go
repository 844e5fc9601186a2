package installer

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

// TestTLS checks that the installer never contacts an https mirror over plain HTTP.
func TestTLS(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	redirect := false
	files := http.FileServer(http.Dir(m.dir))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if redirect {
			http.Redirect(w, r, m.url+r.URL.Path, http.StatusFound)
			return
		}
		files.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // hides the expected errors of clients that disconnect
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644)

	b := newBox(t, m, dash(t))
	b.path = []string{noSleep(t)}
	b.want(t, 1, []string{"cannot download stable.txt from " + server.URL}, "--mirror", server.URL)
	b.env = []string{"CURL_CA_BUNDLE=" + authority}
	redirect = true
	b.want(t, 1, []string{"cannot download stable.txt from " + server.URL}, "--mirror", server.URL)
	if asked := m.downloads(); asked != "" {
		t.Errorf("it requested %s over HTTP", asked)
	}
	b.nothing(t)
	redirect = false
	b.want(t, 0, nil, "--mirror", server.URL)
	b.whole(t, "v1.2.3", "")
}

// TestFlakyMirror checks that the installer retries requests to a failing mirror. It must print the
// mirror's messages without terminal control characters.
func TestFlakyMirror(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	for name, only := range map[string]string{
		"curl": tools(t, used...),
		"wget": tools(t, append(without(used, "curl"), "wget")...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			var dead atomic.Bool
			files := http.FileServer(http.Dir(m.dir))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1)%3 != 0 || dead.Load() {
					hijacked, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer hijacked.Close()
					if _, err := hijacked.Write([]byte("HTTP/1.1 503 \x1b[31mred\x07\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")); err != nil {
						t.Error(err)
					}
					return
				}
				files.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			b := newBox(t, m, dash(t))
			b.path, b.only = []string{noSleep(t)}, only
			b.want(t, 0, nil, "--mirror", server.URL)
			b.whole(t, "v1.2.3", "")
			dead.Store(true)
			before := asked.Load()
			out := b.want(t, 1, []string{"cannot download stable.txt", "503"}, "--mirror", server.URL)
			if strings.ContainsAny(out, "\x1b\x07") {
				t.Errorf("it shows %q", out)
			}
			if n := asked.Load() - before; n != 4 {
				t.Errorf("it made %d requests", n)
			}
		})
	}
}

// TestSignals checks that the installer leaves no files after Ctrl-C or a hangup.
func TestSignals(t *testing.T) {
	t.Parallel()
	// Under nohup, shells would inherit an ignored SIGHUP. A signal that this process catches is
	// reset in its children.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	m := newMirror(t, "v1.2.3")
	inShells(t, func(t *testing.T, sh shell) {
		for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
			reached, release := make(chan struct{}), make(chan struct{})
			reach := sync.OnceFunc(func() { close(reached) })
			files := http.FileServer(http.Dir(m.dir))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, ".tar.gz") {
					reach()
					<-release
					return
				}
				files.ServeHTTP(w, r)
			}))
			b := newBox(t, m, sh)
			cmd := b.command(t.Context(), t, "--mirror", server.URL)
			must.OK(t, cmd.Start())
			select {
			case <-reached:
			case <-time.After(time.Minute):
				t.Error("it does not download")
			}
			if err := syscall.Kill(-cmd.Process.Pid, sig); err != nil {
				t.Error(err)
			}
			if err := ignoreExit(cmd.Wait()); err != nil {
				t.Error(err)
			}
			close(release)
			server.Close()
			if got := cmd.ProcessState.ExitCode(); got != code {
				t.Errorf("after %v the exit code is %d, want %d", sig, got, code)
			}
			if left := names(t, b.tmp); len(left) > 0 {
				t.Errorf("after %v, %q are in TMPDIR", sig, left)
			}
			b.nothing(t)
		}
	})
}

// TestInterruptKey checks that Ctrl-C on a terminal reaches every downloader.
func TestInterruptKey(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.2.3")
	busybox := tools(t, without(used, "curl")...)
	link(t, "busybox", filepath.Join(busybox, "wget"))
	for name, only := range map[string]string{
		"curl": tools(t, used...), "wget": tools(t, append(without(used, "curl"), "wget")...), "busybox wget": busybox,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reached, hungUp := make(chan struct{}), make(chan struct{})
			files := http.FileServer(http.Dir(m.dir))
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, ".tar.gz") {
					close(reached)
					<-r.Context().Done()
					close(hungUp)
					return
				}
				files.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			b := newBox(t, m, dash(t))
			b.only = only
			cmd, terminal := b.onTerminal(t, "--mirror", server.URL)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(io.Discard, terminal) // reading from a closed terminal fails
			}()
			for _, wait := range []struct {
				what string
				done chan struct{}
			}{{"download", reached}, {"end the download", hungUp}, {"end", done}} {
				select {
				case <-wait.done:
				case <-time.After(time.Minute):
					_ = cmd.Process.Kill()
					server.CloseClientConnections()
					t.Fatalf("it does not %s", wait.what)
				}
				if wait.done == reached {
					must.Get(terminal.WriteString("\x03"))(t)
				}
			}
			must.OK(t, ignoreExit(cmd.Wait()))
			if got := cmd.ProcessState.ExitCode(); got != 130 {
				t.Errorf("the exit code is %d", got)
			}
			b.nothing(t)
		})
	}
}

func TestUserlands(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.1.0")
	m.release(t, "v1.0.0")
	busybox := tools(t, "openssl")
	applets := strings.Fields(runScript(t, dash(t), "busybox --list"))
	for _, name := range append(without(used, "openssl", "curl"), "wget") {
		if slices.Contains(applets, name) {
			link(t, "busybox", filepath.Join(busybox, name))
		}
	}
	// The tar implementation of macOS, if available.
	bsd := tools(t, without(used, "tar")...)
	tar := "bsdtar"
	if _, err := exec.LookPath(tar); err != nil {
		tar = "tar"
	}
	link(t, tar, filepath.Join(bsd, "tar"))
	for name, c := range map[string]struct {
		sh   shell
		only string
	}{
		"busybox": {shell{filepath.Join(busybox, "sh")}, busybox},
		"bsd":     {dash(t), bsd},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, m, c.sh)
			b.only = c.only
			b.want(t, 0, nil, "--version=1.0.0")
			b.want(t, 0, nil)
			b.want(t, 0, nil)
			b.whole(t, "v1.1.0", "v1.0.0")
			if entries := names(t, filepath.Join(b.root(), "versions", "v1.1.0")); len(entries) != 8 {
				t.Errorf("the version has %q", entries)
			}
			b.want(t, 0, nil, "--uninstall")
			if _, err := os.Lstat(b.root()); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", b.root(), err)
			}
		})
	}
}
