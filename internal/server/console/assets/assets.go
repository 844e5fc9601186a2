// Package assets serves the console's embedded scripts, styles and icons. Their path contains a
// hash of all files, so that browsers keep them until the next version.
package assets

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"
	"github.com/klauspost/compress/gzip"
)

//go:embed js css icons vendor rules
var files embed.FS

// Pattern is the route of [Serve].
const Pattern = "/-/assets/{hash}/*"

// styles are the style sheets in the order in which they apply.
var styles = []string{"tokens", "elements", "frame", "components", "pages", "log", "phone"}

type file struct {
	kind          string
	plain, packed []byte
}

type bundle struct {
	path  string
	files map[string]file
}

// load reads all files once. The error of an embedded file is impossible.
var load = sync.OnceValue(func() bundle {
	b := bundle{files: map[string]file{}}
	sum := sha256.New()
	_ = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum.Write([]byte(name))
		sum.Write(content)
		b.add(name, content)
		return nil
	})
	b.add("console.css", joinStyles())
	b.path = "/-/assets/" + hex.EncodeToString(sum.Sum(nil))[:16]
	return b
})

// joinStyles returns all style sheets as one, without comments and needless spaces.
func joinStyles() []byte {
	var out []byte
	for _, name := range styles {
		content, err := files.ReadFile("css/" + name + ".css")
		if err == nil {
			out = append(out, content...)
		}
	}
	return squeeze(out)
}

func (b bundle) add(name string, content []byte) {
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) { // the host's table of types might differ
	case ".js":
		kind, content = "text/javascript; charset=utf-8", jsNeedless.ReplaceAll(content, nil)
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".json":
		kind = "application/speculationrules+json"
	case ".svg":
		kind = "image/svg+xml"
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return // the level is a constant
	}
	_, _ = z.Write(content) // writes to memory
	_ = z.Close()
	b.files[name] = file{kind: kind, plain: content, packed: packed.Bytes()}
}

// Path returns the path of all files, without a trailing slash.
func Path() string { return load().path }

// PrefetchRules is the path of the rules by which browsers fetch a page when its link is pressed or pointed at.
func PrefetchRules() string { return load().path + "/rules/prefetch.json" }

// Serve serves a file. The hash in the path only makes URLs unique: an old page gets the new file.
func Serve(w http.ResponseWriter, r *http.Request) {
	f, ok := load().files[chi.URLParam(r, "*")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	if !strings.HasPrefix(r.URL.Path, load().path+"/") {
		h.Set("Cache-Control", "no-store")
	}
	h.Add("Vary", "Accept-Encoding")
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = f.packed
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) //nolint:errcheck // the browser might have disconnected
}
