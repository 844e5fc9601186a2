package pulumi

import (
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v4"
)

// maxProjectFile limits the size of a project file, in bytes.
const maxProjectFile = 1 << 20

// Project contains the parts of a project file that the runner needs.
type Project struct {
	Name    string
	Runtime string
	// Packages is true if the project lists packages that need generated SDKs or installed plugins
	// before the project can run.
	Packages bool
	// VirtualEnv is the runtime's option with the directory of a virtual environment, or "".
	VirtualEnv string
}

// ReadProject reads a project file, in YAML or JSON.
func ReadProject(path string) (Project, error) {
	file, err := os.Open(path)
	if err != nil {
		return Project{}, fmt.Errorf("opening the project file: %w", err)
	}
	defer file.Close() // opened for reading only
	data, err := io.ReadAll(io.LimitReader(file, maxProjectFile))
	if err != nil {
		return Project{}, fmt.Errorf("reading the project file: %w", err)
	}
	var parsed struct {
		Name     string `yaml:"name"`
		Runtime  any    `yaml:"runtime"`
		Packages any    `yaml:"packages"`
		Plugins  any    `yaml:"plugins"`
	}
	if err := yaml.Unmarshal(data, &parsed); err != nil {
		return Project{}, fmt.Errorf("parsing the project file %s: %w", path, err)
	}
	p := Project{Name: parsed.Name, Packages: parsed.Packages != nil || parsed.Plugins != nil}
	switch runtime := parsed.Runtime.(type) {
	case string:
		p.Runtime = runtime
	case map[string]any:
		p.Runtime, _ = runtime["name"].(string)
		if options, ok := runtime["options"].(map[string]any); ok {
			p.VirtualEnv, _ = options["virtualenv"].(string)
		}
	}
	if p.Runtime == "" {
		return Project{}, fmt.Errorf("the project file %s names no runtime", path)
	}
	return p, nil
}

// NeedsInstall reports whether the project's dependencies must be installed before it can run. For
// a YAML program, this is true only if it lists packages, because the engine installs provider
// plugins on demand.
func (p Project) NeedsInstall() bool { return p.Runtime != "yaml" || p.Packages }
