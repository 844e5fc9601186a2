package deploy

import (
	"encoding/json"
	"fmt"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/workflow"
)

// sourceConsole is the source of settings that the console stores.
const sourceConsole = "console"

// save stores where the program of a stack is. It changes no settings that name a program already.
func (p *pages) save(v *page.Visit, e entered) error {
	if e.Repository == "" {
		return fault.Invalid("name the repository that contains the program")
	}
	set, err := p.Deployments.Settings(v.Context(), v.Stack)
	if err != nil && fault.KindOf(err) != fault.KindNotFound {
		return err
	}
	if set != nil && set.Settings.Git() != nil && set.Settings.Git().RepoURL != "" {
		return fault.Conflict("the settings of the stack name a repository by now: open the form again")
	}
	git := workflow.SourceContextGit{RepoURL: e.Repository, Branch: e.Branch, RepoDir: strings.Trim(e.Folder, "/")}
	patch, err := json.Marshal(map[string]any{"sourceContext": map[string]any{"git": git}})
	if err != nil {
		return fmt.Errorf("encoding the settings: %w", err)
	}
	_, err = p.Deployments.PatchSettings(v.Context(), v.Who, v.Stack, patch, sourceConsole)
	return err
}
