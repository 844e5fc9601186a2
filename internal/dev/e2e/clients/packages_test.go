package clients

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"workflowagent/internal/dev/must"
)

// packageIndex is a package registry of npm, pip and Go with one package, leaf 1.0.0, which has one
// function that returns greeting.
type packageIndex struct {
	URL string

	mu      sync.Mutex
	fetched map[string]int // by path
}

const greeting = "hello from leaf"

func startPackageIndex(t *testing.T) *packageIndex {
	t.Helper()
	p := &packageIndex{fetched: map[string]int{}}
	files := map[string][]byte{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		p.mu.Lock()
		p.fetched[r.URL.Path]++
		p.mu.Unlock()
		w.Header().Set("Cache-Control", "public, max-age=3600")
		if bytes.HasPrefix(data, []byte("<")) {
			w.Header().Set("Content-Type", "text/html")
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	p.URL = server.URL

	npm := tarball(t, map[string]string{
		"package/package.json": `{"name": "leaf", "version": "1.0.0", "main": "leaf.js"}`,
		"package/leaf.js":      "module.exports = () => '" + greeting + "'\n",
	})
	sum := sha512.Sum512(npm)
	files["/npm/leaf/-/leaf-1.0.0.tgz"] = npm
	files["/npm/leaf"] = fmt.Appendf(nil, `{"name": "leaf", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "leaf", "version": "1.0.0",
		"main": "leaf.js", "dist": {"tarball": "%s/npm/leaf/-/leaf-1.0.0.tgz", "integrity": "sha512-%s"}}}}`, p.URL, base64.StdEncoding.EncodeToString(sum[:]))

	// pip also updates setuptools and wheel, which a virtual environment may lack.
	for _, name := range []string{"leaf", "setuptools", "wheel"} {
		wheel := archive(t, map[string]string{
			name + ".py":                       "def hello():\n    return '" + greeting + "'\n",
			name + "-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0.0\n",
			name + "-1.0.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
			name + "-1.0.0.dist-info/RECORD":   "",
		})
		path := "/wheels/" + name + "-1.0.0-py3-none-any.whl"
		sum := sha256.Sum256(wheel)
		files[path] = wheel
		files["/pip/"+name+"/"] = fmt.Appendf(nil, `<!DOCTYPE html><html><body><a href="%s#sha256=%s">%s-1.0.0-py3-none-any.whl</a></body></html>`, path, hex.EncodeToString(sum[:]), name)
	}

	const module = "/go/lab.invalid/leaf/@v/"
	files[module+"list"] = []byte("v1.0.0\n")
	files[module+"v1.0.0.info"] = []byte(`{"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}`)
	files[module+"v1.0.0.mod"] = []byte("module lab.invalid/leaf\n")
	files[module+"v1.0.0.zip"] = archive(t, map[string]string{
		"lab.invalid/leaf@v1.0.0/go.mod":  "module lab.invalid/leaf\n",
		"lab.invalid/leaf@v1.0.0/leaf.go": "package leaf\n\nfunc Hello() string { return \"" + greeting + "\" }\n",
	})
	return p
}

// count returns how often a file has been fetched.
func (p *packageIndex) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fetched[path]
}

// env returns the variables that make the package managers use the registry, and nothing else.
func (p *packageIndex) env() map[string]string {
	return map[string]string{
		"NPM_CONFIG_REGISTRY": p.URL + "/npm/", "NPM_CONFIG_AUDIT": "false", "NPM_CONFIG_UPDATE_NOTIFIER": "false",
		"PIP_INDEX_URL": p.URL + "/pip/", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
		"GOPROXY": p.URL + "/go", "GOSUMDB": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-modcacherw",
	}
}

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for name, text := range files {
		f, err := z.Create(name)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		must.OK(t, err)
	}
	must.OK(t, z.Close())
	return out.Bytes()
}

func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for name, text := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))})
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		must.OK(t, err)
	}
	must.OK(t, w.Close())
	must.OK(t, z.Close())
	return out.Bytes()
}
