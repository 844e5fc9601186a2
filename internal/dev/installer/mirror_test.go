package installer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/release/signing"
	"workflowagent/internal/host/release"
)

type mirror struct {
	dir     string
	url     string
	key     *ecdsa.PrivateKey
	keyFile string // file of the public key

	mu    sync.Mutex
	asked []string // requested paths
}

func newMirror(t *testing.T, newest ...string) *mirror {
	t.Helper()
	m := &mirror{dir: t.TempDir(), key: newKey(t)}
	m.keyFile = filepath.Join(t.TempDir(), "key.pem")
	writeFile(t, m.keyFile, public(t, m.key), 0o644)
	files := http.FileServer(http.Dir(m.dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.asked = append(m.asked, r.URL.Path)
		m.mu.Unlock()
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	m.url = server.URL
	for _, version := range newest {
		m.newest(t, version)
	}
	return m
}

func (m *mirror) downloads() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.asked, " ")
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	return key
}

func public(t *testing.T, keys ...*ecdsa.PrivateKey) []byte {
	t.Helper()
	var text []byte
	for _, key := range keys {
		block := must.Get(signing.PublicPEM(key))(t)
		text = append(text, block...)
	}
	return text
}

func writeFile(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(t, os.WriteFile(path, data, mode))
}

// program is the script that replaces the agent in archives. It prints its version and passes
// "install" to the real agent.
const program = `#!/bin/sh
case $1 in
version) if [ -e "$FAKE/mute" ]; then exit 126; fi; echo %[1]s ;;
install) exec "$AGENT" "$@" ;;
*) echo "%[1]s runs" ;;
esac
`

// padding is the size of the incompressible data in each archive, in bytes. The small file systems
// of the tests are sized relative to it.
const padding = 256 << 10

type member struct {
	name, link string
	data       []byte
	kind       byte
}

func members(t *testing.T, version string) []member {
	t.Helper()
	noise := make([]byte, padding)
	must.Get(rand.Read(noise))(t)
	list := []member{
		{name: "LICENSE", data: []byte("Apache\n")},
		{name: "pulumi-workflow-agent.yaml.sample", data: []byte("token: pul-...\n")},
		{name: "man/customer-managed-workflow-agent.1", data: []byte(".TH\n")},
		{name: release.OldName, link: release.Program},
	}
	for _, name := range release.Programs() {
		list = append(list, member{name: name, data: fmt.Appendf(nil, program, version)})
	}
	list[len(list)-1].data = append(list[len(list)-1].data, noise...)
	return list
}

func archive(t *testing.T, top string, list []member) []byte {
	t.Helper()
	var packed bytes.Buffer
	squeezed, err := gzip.NewWriterLevel(&packed, gzip.NoCompression) // the race detector slows compression down
	must.OK(t, err)
	out := tar.NewWriter(squeezed)
	for _, m := range list {
		header := &tar.Header{
			Name: top + "/" + m.name, Linkname: m.link, Size: int64(len(m.data)),
			Mode: 0o755, Typeflag: tar.TypeReg, ModTime: time.Unix(1e9, 0), Uid: 1234, Gid: 1234,
		}
		if strings.HasPrefix(m.name, "/") || strings.HasPrefix(m.name, "..") {
			header.Name = m.name
		}
		if m.link != "" {
			header.Typeflag = tar.TypeSymlink
		}
		if m.kind != 0 {
			header.Typeflag = m.kind
		}
		must.OK(t, out.WriteHeader(header))
		must.Get(out.Write(m.data))(t)
	}
	must.OK(t, out.Close())
	must.OK(t, squeezed.Close())
	return packed.Bytes()
}

var platforms = [][2]string{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// release adds a release to the mirror. Its archives contain the extra members in addition to the
// usual ones.
func (m *mirror) release(t *testing.T, version string, extra ...member) {
	t.Helper()
	sums := release.Checksums{}
	for _, platform := range platforms {
		name := must.Get(release.Archive(version, platform[0], platform[1]))(t)
		packed := archive(t, strings.TrimSuffix(name, ".tar.gz"), append(members(t, version), extra...))
		sums[name] = sha256.Sum256(packed)
		writeFile(t, filepath.Join(m.dir, version, name), packed, 0o644)
	}
	var text bytes.Buffer
	must.Get(sums.WriteTo(&text))(t)
	m.put(t, version+"/"+release.ChecksumsFile, text.Bytes(), m.key)
}

func (m *mirror) channel(t *testing.T, name, version string) {
	t.Helper()
	text := release.Channel{Version: version, Published: time.Unix(1_800_000_000, 0)}.Text()
	m.put(t, release.ChannelFile(name), text, m.key)
}

func (m *mirror) newest(t *testing.T, version string) {
	t.Helper()
	m.release(t, version)
	m.channel(t, release.Stable, version)
}

func (m *mirror) put(t *testing.T, name string, data []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	signature := must.Get(signing.Sign(key, data))(t)
	writeFile(t, filepath.Join(m.dir, name), data, 0o644)
	writeFile(t, filepath.Join(m.dir, name+release.SignatureSuffix), signature, 0o644)
}

// script returns install.sh as released for this mirror. It trusts keys, by default the mirror's
// own key.
func (m *mirror) script(t *testing.T, keys ...*ecdsa.PrivateKey) []byte {
	t.Helper()
	if len(keys) == 0 {
		keys = []*ecdsa.PrivateKey{m.key}
	}
	text := string(source(t))
	for name, value := range map[string]string{
		"RELEASE_URL": m.url,
		"RELEASE_KEY": base64.StdEncoding.EncodeToString(public(t, keys...)),
	} {
		line := "\n" + name + "=\"\"\n"
		if strings.Count(text, line) != 1 || strings.Count(text, "\n"+name+"=") != 1 {
			t.Fatalf("install.sh does not have the line %s once", strings.TrimSpace(line))
		}
		text = strings.Replace(text, line, "\n"+name+"=\""+value+"\"\n", 1)
	}
	return []byte(text)
}

func source(t *testing.T) []byte {
	t.Helper()
	text := must.Get(os.ReadFile("../../../install.sh"))(t)
	return text
}
