// Package source makes environments equal to definitions that are kept outside the server, in a folder with a file
// PROJECT/ENVIRONMENT.yaml for each. A plan says what would change; all definitions must be free of errors before one is
// applied.
package source

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
)

// File is a file of a folder. Its path is relative to the folder, with slashes.
type File struct {
	Path       string `json:"path"`
	Definition string `json:"definition"`
}

// MaxBytes bounds the definitions of a folder together, in bytes.
const MaxBytes = 16 << 20

// Wanted reports whether a path is that of a file that [Service.Plan] needs or, if it ends with a slash, of a folder that can
// contain one. Hidden files and folders are not wanted.
func Wanted(name string) bool {
	folder := strings.HasSuffix(name, "/")
	parts := strings.Split(strings.TrimSuffix(name, "/"), "/")
	hidden := slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(p, ".") })
	if folder {
		return len(parts) == 1 && !hidden
	}
	return len(parts) <= 2 && !hidden && isYAML(name)
}

func isYAML(name string) bool { return path.Ext(name) == ".yaml" || path.Ext(name) == ".yml" }

// nameOf returns the environment that a file defines. ok is not set for files directly in the folder, which are not in a
// project.
func nameOf(file string) (r environments.Reference, ok bool, err error) {
	project, name, ok := strings.Cut(file, "/")
	if !ok {
		return r, false, nil
	}
	r, err = environments.ParseReference(project + "/" + strings.TrimSuffix(name, path.Ext(name)))
	if err == nil && r.Version != "" {
		err = fault.Invalid("%q does not name an environment: it contains %q", file, "@")
	}
	return r, true, err
}

// definition is what a folder says about one environment.
type definition struct {
	environments.Reference
	File
}

// read returns the definitions in the files of a folder, in the order of their names.
func read(files []File) (list []definition, ignored []string, err error) {
	size := 0
	paths := map[environments.Reference]string{}
	for _, f := range files {
		r, ok, err := nameOf(f.Path)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			ignored = append(ignored, f.Path)
			continue
		}
		if other, known := paths[r]; known {
			return nil, nil, fault.Invalid("%s and %s define the same environment; remove one of them", other, f.Path)
		}
		if size += len(f.Definition); size > MaxBytes {
			return nil, nil, fault.New(fault.KindTooLarge, "the definitions have more than %d MiB", MaxBytes>>20)
		}
		paths[r] = f.Path
		list = append(list, definition{r, f})
	}
	slices.SortFunc(list, func(a, b definition) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Name, b.Name))
	})
	return list, ignored, nil
}

// Action is what happens to an environment.
type Action string

// The actions.
const (
	Create Action = "create"
	Change Action = "change" // a new revision
	Keep   Action = "keep"   // the definition is equal
	Delete Action = "delete"
)

// Step is what a plan does with one environment.
type Step struct {
	Environment string `json:"environment"` // PROJECT/NAME
	Path        string `json:"path,omitempty"`
	Action      Action `json:"action"`
	// Difference is that of the definitions, as lines that begin with "+", "-" or a space.
	Difference []string `json:"difference,omitempty"`
	// Problems prevent the whole plan.
	Problems []string `json:"problems,omitempty"`
	// Unchecked are the imports without which the definition was checked.
	Unchecked []string `json:"unchecked,omitempty"`

	found      environments.Found // the environment, if it exists
	definition string
	imports    []environments.Reference
}

// Plan is what would happen to the environments of an organization.
type Plan struct {
	Steps []Step `json:"steps"`
	// Others are the environments that the folder does not contain. They remain as they are.
	Others []string `json:"others,omitempty"`
	// Ignored are files that define no environment, because they are not in the folder of a project.
	Ignored []string `json:"ignored,omitempty"`
}

// Failed reports whether a problem prevents the plan.
func (p Plan) Failed() bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return len(s.Problems) > 0 })
}

// Wrong returns the file, or the environment, with the first problem, or "".
func (p Plan) Wrong() string {
	for _, s := range p.Steps {
		if len(s.Problems) > 0 {
			return cmp.Or(s.Path, s.Environment)
		}
	}
	return ""
}

// Count returns the number of steps with an action.
func (p Plan) Count(a Action) int {
	n := 0
	for _, s := range p.Steps {
		if s.Action == a {
			n++
		}
	}
	return n
}

// Summary describes a plan in one line.
func (p Plan) Summary() string {
	for _, s := range p.Steps {
		if len(s.Problems) > 0 {
			return p.Wrong() + ": " + s.Problems[0]
		}
	}
	var parts []string
	for _, each := range []struct {
		action Action
		word   string
	}{{Create, "created"}, {Change, "changed"}, {Delete, "deleted"}} {
		if n := p.Count(each.action); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, each.word))
		}
	}
	if len(parts) == 0 {
		return "no environment changes"
	}
	return "environments: " + strings.Join(parts, ", ")
}
