package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

const sbomSuffix = ".cdx.json"

// bills writes a software bill of materials in CycloneDX format next to each archive. It reads the
// dependencies from the build information of the archived programs.
func (m *maker) bills(context.Context) error {
	archives, err := filepath.Glob(filepath.Join(m.files, "*.tar.gz"))
	if err != nil {
		return fmt.Errorf("finding the archives: %w", err)
	}
	for _, archive := range archives {
		text, err := m.bill(archive)
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		if err := writeFile(strings.TrimSuffix(archive, ".tar.gz")+sbomSuffix, text); err != nil {
			return err
		}
	}
	return nil
}

type program struct {
	name string
	sum  [32]byte
	info *debug.BuildInfo
}

// bill returns the bill of materials of an archive. The bill is reproducible: it has the commit's
// date and no serial number.
func (m *maker) bill(archive string) ([]byte, error) {
	data, err := os.ReadFile(archive)
	if err != nil {
		return nil, fmt.Errorf("reading the archive: %w", err)
	}
	programs, err := programsIn(data)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp:  m.time.Format(time.RFC3339),
		Lifecycles: &[]cdx.Lifecycle{{Phase: cdx.LifecyclePhaseBuild}},
		Component: &cdx.Component{
			BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: m.version,
			Hashes: sha256Hash(sha256.Sum256(data)),
		},
	}
	var components []cdx.Component
	libraries := map[string]cdx.Component{}
	whole := cdx.Dependency{Ref: name, Dependencies: &[]string{}}
	dependencies := []cdx.Dependency{}
	for _, p := range programs {
		if err := checkGo(p.name, p.info.GoVersion); err != nil {
			return nil, err
		}
		ref := name + "/" + p.name
		components = append(components, m.programComponent(ref, p))
		*whole.Dependencies = append(*whole.Dependencies, ref)
		needs := []string{}
		for _, library := range librariesOf(p.info) {
			libraries[library.BOMRef] = library
			needs = append(needs, library.BOMRef)
		}
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &needs})
	}
	for _, ref := range slices.Sorted(maps.Keys(libraries)) {
		components = append(components, libraries[ref])
	}
	dependencies = append([]cdx.Dependency{whole}, dependencies...)
	bom.Components, bom.Dependencies = &components, &dependencies
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("writing the bill of materials: %w", err)
	}
	return text.Bytes(), nil
}

// programsIn returns the programs in an archive, in the order of their names. Every executable must
// be a Go program.
func programsIn(archive []byte) ([]program, error) {
	var programs []program
	err := eachFile(bytes.NewReader(archive), func(header *tar.Header, content []byte) error {
		if header.Mode&0o111 == 0 {
			return nil
		}
		info, err := buildinfo.Read(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("reading the build information: %w", err)
		}
		programs = append(programs, program{path.Base(header.Name), sha256.Sum256(content), info})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(programs) == 0 {
		return nil, errors.New("the archive contains no program")
	}
	slices.SortFunc(programs, func(a, b program) int { return cmp.Compare(a.name, b.name) })
	return programs, nil
}

func (m *maker) programComponent(ref string, p program) cdx.Component {
	properties := []cdx.Property{{Name: "go:version", Value: p.info.GoVersion}}
	for _, s := range p.info.Settings {
		properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	return cdx.Component{
		BOMRef: ref, Type: cdx.ComponentTypeApplication, Name: p.name, Version: m.version,
		Hashes: sha256Hash(p.sum), Properties: &properties,
	}
}

// librariesOf returns the modules that a program links, and Go's standard library.
func librariesOf(info *debug.BuildInfo) []cdx.Component {
	libraries := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		if strings.HasPrefix(dep.Path, ".") {
			continue // a directory of this repository
		}
		libraries = append(libraries, library(dep.Path, dep.Version))
	}
	return libraries
}

func library(module, version string) cdx.Component {
	// The package URL specification requires lower-case names of Go modules.
	purl := "pkg:golang/" + strings.ToLower(module) + "@" + url.QueryEscape(version)
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: module, Version: version, PackageURL: purl}
}

func sha256Hash(sum [32]byte) *[]cdx.Hash {
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}}
}
