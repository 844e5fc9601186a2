package environments

import (
	"slices"
	"strconv"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

const (
	// maxImporters is the largest number of environments for which a change of an imported one is an event.
	maxImporters = 500
	// maxAffected is the largest number of revisions of each that the event names, the newest ones.
	maxAffected = 100
)

// author is on whose behalf an environment changes.
type author struct {
	name, userID string
	// stackID and deploymentID are those of the update that makes the change, or "".
	stackID, deploymentID string
}

func authorOf(p identity.Principal) author {
	return author{name: p.Name(), userID: p.User.ID}
}

// event records for webhooks what happened to an environment. fields depend on the kind of the event.
func event(tx *store.Tx, by author, e store.Environment, name webhooks.Name, fields map[string]any) error {
	return webhooks.Record(tx, webhooks.Event{
		Name: name, OrgID: e.OrgID, StackID: by.stackID, EnvironmentID: e.ID, DeploymentID: by.deploymentID,
		Describe: func(string) (webhooks.Description, error) {
			return webhooks.Description{Project: e.Project, Environment: e.Name, UserID: by.userID, Fields: fields}, nil
		},
	})
}

func tagEvent(tx *store.Tx, by author, e store.Environment, name webhooks.Name, action, tag string) error {
	return event(tx, by, e, name, map[string]any{"action": action, "tagName": tag})
}

func versionTagEvent(tx *store.Tx, by author, e store.Environment, name webhooks.Name, action string, t store.RevisionTag) error {
	return event(tx, by, e, name, map[string]any{"action": action, "tagName": t.Name, "revision": t.Number})
}

func revisionEvent(tx *store.Tx, by author, e store.Environment, name webhooks.Name, action string, number int64) error {
	return event(tx, by, e, name, map[string]any{"action": action, "revision": number})
}

// importersEvent records for webhooks of the environments that import an environment, also through others, that some of
// its versions now name the revision number.
func importersEvent(tx *store.Tx, by author, e store.Environment, number int64, versions []string) error {
	if some, err := tx.HasEnvironmentWebhooks(e.OrgID); err != nil || !some {
		return err
	}
	type imported struct {
		store.Environment
		versions []string
	}
	seen := map[string]bool{e.ID: true}
	for next := []imported{{e, versions}}; len(next) > 0; next = next[1:] {
		importers, err := tx.Importers(next[0].Environment, next[0].versions, maxImporters, maxAffected)
		if err != nil {
			return err
		}
		for _, i := range importers {
			if seen[i.EnvironmentID] {
				continue
			}
			if seen[i.EnvironmentID] = true; len(seen) > maxImporters+1 {
				return nil
			}
			other, err := tx.Environment(i.EnvironmentID)
			if err != nil {
				return err
			}
			if err := event(tx, by, other, webhooks.ImportedEnvironmentChanged, map[string]any{
				"affectedRevisions":            i.Numbers,
				"importedEnvironmentReference": map[string]any{"projectName": e.Project, "environmentName": e.Name, "revision": number},
			}); err != nil {
				return err
			}
			affected, err := versionsOf(tx, other, i.Numbers)
			if err != nil {
				return err
			}
			next = append(next, imported{other, affected})
		}
	}
	return nil
}

// versionsOf returns the versions by which revisions of an environment can be imported.
func versionsOf(tx *store.Tx, e store.Environment, numbers []int64) ([]string, error) {
	var out []string
	for _, n := range numbers {
		out = append(out, strconv.FormatInt(n, 10))
	}
	if slices.Contains(numbers, e.LastNumber) {
		out = append(out, store.LatestVersion)
	}
	tags, err := tx.TagsOfRevisions(e.ID, numbers[0], numbers[len(numbers)-1])
	for _, t := range tags {
		if slices.Contains(numbers, t.Number) {
			out = append(out, t.Name)
		}
	}
	return out, err
}
