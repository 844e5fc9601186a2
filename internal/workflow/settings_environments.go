package workflow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxEnvironments limits the number of environments that settings name.
const maxEnvironments = 20

// Environments returns the environments (Pulumi ESC) of the stack's organization whose variables and files the steps get,
// in the order in which they are merged. s can be nil.
func (s *Settings) Environments() []string {
	if s == nil || s.OperationContext == nil {
		return nil
	}
	return s.OperationContext.Environments
}

// DropEnvironments removes the environments, and reports whether there were some.
func (s *Settings) DropEnvironments() bool {
	if len(s.Environments()) == 0 {
		return false
	}
	without := *s.OperationContext
	without.Environments = nil
	s.OperationContext = &without
	return true
}

// CheckEnvironment returns an error unless name is the name of an environment: project/environment or
// project/environment@version.
func CheckEnvironment(name string) error {
	path, version, versioned := strings.Cut(name, "@")
	project, environment, _ := strings.Cut(path, "/")
	names := []string{project, environment}
	if versioned {
		names = append(names, version)
	}
	if slices.ContainsFunc(names, func(part string) bool {
		return part == "." || part == ".." || !IsName(part)
	}) {
		return errors.New("write project/environment, or project/environment@version")
	}
	return nil
}

func checkEnvironments(names []string) error {
	const at = "operationContext.environments"
	if len(names) > maxEnvironments {
		return fmt.Errorf("%s has more than %d environments; name one that imports the others", at, maxEnvironments)
	}
	for _, name := range names {
		if err := CheckEnvironment(name); err != nil {
			return fmt.Errorf("%s: %q does not name an environment: %w", at, clip(name), err)
		}
	}
	return nil
}
