package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"workflowagent/internal/dev/must"
)

func packTar(t *testing.T, file string, programs map[string][]byte) {
	t.Helper()
	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.NoCompression) // compression is slow under the race detector
	must.OK(t, err)
	w := tar.NewWriter(zipped)
	for name, data := range programs {
		must.OK(t, w.WriteHeader(&tar.Header{Name: "wrap/" + name, Mode: 0o755, Size: int64(len(data))}))
		must.Get(w.Write(data))(t)
	}
	must.OK(t, w.WriteHeader(&tar.Header{Name: "wrap/LICENSE", Mode: 0o644}))
	must.OK(t, w.WriteHeader(&tar.Header{Name: "wrap/old", Linkname: "one", Typeflag: tar.TypeSymlink, Mode: 0o777}))
	must.OK(t, w.Close())
	must.OK(t, zipped.Close())
	write(t, file, packed.Bytes())
}

// TestBills checks the bill of an archive that contains this test's own binary.
func TestBills(t *testing.T) {
	self := must.Get(os.Executable())(t)
	data := read(t, self)
	m := newTestMaker(t)
	m.version = "v1.2.3"
	packTar(t, filepath.Join(m.files, "agent-v1.2.3.tar.gz"), map[string][]byte{"one": data, "two": data})
	must.OK(t, m.bills(t.Context()))
	file := filepath.Join(m.files, "agent-v1.2.3"+sbomSuffix)
	first := read(t, file)
	var bom cdx.BOM
	must.OK(t, cdx.NewBOMDecoder(bytes.NewReader(first), cdx.BOMFileFormatJSON).Decode(&bom))
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "2026-11-22T01:02:03Z" || bom.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("the head: %+v", bom.Metadata)
	}
	known := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		if _, twice := known[c.BOMRef]; twice {
			t.Errorf("%s occurs twice", c.BOMRef)
		}
		known[c.BOMRef] = c
	}
	program, ok := known["agent-v1.2.3/one"]
	if !ok || (*program.Hashes)[0].Value != fmt.Sprintf("%x", sha256.Sum256(data)) {
		t.Errorf("the program: %+v", program)
	}
	const itself = "pkg:golang/github.com/cyclonedx/cyclonedx-go@v0.12.0"
	if library, ok := known[itself]; !ok || library.Name != "github.com/CycloneDX/cyclonedx-go" {
		t.Errorf("the library that writes the bill: %+v", library)
	}
	var depends []string
	for _, d := range *bom.Dependencies {
		for _, ref := range *d.Dependencies {
			if _, ok := known[ref]; !ok {
				t.Errorf("%s depends on %s, which is not described", d.Ref, ref)
			}
		}
		if d.Ref == "agent-v1.2.3/two" {
			depends = *d.Dependencies
		}
	}
	if all := strings.Join(depends, " "); !strings.Contains(all, itself) || !strings.Contains(all, "pkg:golang/std@") {
		t.Errorf("the program depends on %s", all)
	}
	must.OK(t, m.bills(t.Context()))
	if second, err := os.ReadFile(file); err != nil || !bytes.Equal(first, second) {
		t.Errorf("a second build differs: %v", err)
	}
}

// TestBillOfSomethingElse checks that an archive without programs, or with an executable that is
// not a Go program, is rejected.
func TestBillOfSomethingElse(t *testing.T) {
	m := newTestMaker(t)
	for name, programs := range map[string]map[string][]byte{"a script": {"one": []byte("#!/bin/sh\n")}, "nothing": nil} {
		file := filepath.Join(m.files, "x.tar.gz")
		packTar(t, file, programs)
		if _, err := m.bill(file); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestOwnModules checks that a directory of this repository, which a program of another module uses, is no library.
func TestOwnModules(t *testing.T) {
	libraries := librariesOf(&debug.BuildInfo{GoVersion: "go1.26.8", Deps: []*debug.Module{
		{Path: "workflowagent", Version: "v0.0.0", Replace: &debug.Module{Path: "../..", Version: "(devel)"}},
		{Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/b", Version: "v1.1.0"}},
	}})
	if len(libraries) != 2 || libraries[1].PackageURL != "pkg:golang/example.com/b@v1.1.0" {
		t.Errorf("%+v", libraries)
	}
}
