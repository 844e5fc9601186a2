package grants

import (
	"errors"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// refused begins the message to a job that may not read outputs. Package cause finds it in the job's log.
const refused = "this deployment may not read the outputs of "

// Refusal returns the error for a job that may not read the outputs of a stack of its organization: which grant is missing,
// and who can give it. It does not reveal whether the stack exists, unless a grant of it covers updates of the job's
// stack. The error is [fault.KindForbidden], because the stock CLI does not show the message of [fault.KindNotFound].
func Refusal(tx *store.Tx, p identity.Principal, project, name string, console links.Console) error {
	reader, err := tx.Stack(p.StackID)
	var d store.Deployment
	if err == nil {
		d, err = tx.Deployment(p.DeploymentID)
	}
	if err != nil {
		return store.IfMissing(err, p.NoStack(p.Org.Name, project, name)) // the job's stack was deleted
	}
	target := p.Org.Name + "/" + project + "/" + name
	var list []store.Grant
	switch st, err := tx.StackByName(p.Org.Name, project, name); {
	case err == nil:
		if list, err = tx.GrantsBetween(store.OutputGrants, st.ID, reader.ID); err != nil {
			return err
		}
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	way := "An administrator of " + target + " can grant it"
	if page := console.Access(p.Org.Name, project, name); page != "" {
		way += " at " + page + " or"
	}
	way += " with: workflow-server stack grant add " + target
	only := " covers only updates that run what the settings of " + reader.Ref() + " name"
	previews := d.Operation == workflow.OperationPreview || d.Trust != store.TrustOwn
	narrow := slices.ContainsFunc(list, func(g store.Grant) bool { return !g.Excluded })
	switch {
	case d.Trust == store.TrustNone:
		return fault.Forbidden("%s%s: no grant can cover it, because it runs neither what the settings of %s name nor a branch of their repository, or comes from a fork. "+
			"Deploy what the settings name, or let a user who may read %s request the deployment", refused, target, reader.Ref(), target)
	case narrow:
		return fault.Forbidden("%s%s: the grant to %s%s, and this is a preview or another branch. %s --previews --to-stack %s", refused, target, reader.Ref(), only, way, reader.Ref())
	case previews && ruleOf(p.Org) && project == reader.Project:
		return fault.Forbidden("%s%s: the rule for stacks of one project%s, or the stack does not exist. %s --previews --to-stack %s", refused, target, only, way, reader.Ref())
	case previews:
		return fault.Forbidden("%s%s: it does not exist, or no grant lets previews and branches of %s read it. %s --previews --to-stack %s", refused, target, reader.Ref(), way, reader.Ref())
	default:
		return fault.Forbidden("%s%s: it does not exist, or no grant lets jobs of %s read it. %s --to-stack %s", refused, target, reader.Ref(), way, reader.Ref())
	}
}
