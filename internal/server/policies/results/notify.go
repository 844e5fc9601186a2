package results

import (
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

// maxTold bounds the violations in the payload of an event.
const maxTold = 50

// levelEvents are the levels of violations with their events, in the order in which these are recorded.
var levelEvents = []struct {
	level findings.Level
	name  webhooks.Name
}{{findings.Mandatory, webhooks.PolicyMandatory}, {findings.Advisory, webhooks.PolicyAdvisory}}

// notify records for webhooks what an update that ends has found: at most one event per level, and one if required packs
// did not run.
func (s *Service) notify(tx *store.Tx, st store.Stack, u store.Update, runs []store.PolicyRun) error {
	counts := map[findings.Level]int64{}
	for _, r := range runs {
		counts[findings.Mandatory] += r.Mandatory
		counts[findings.Advisory] += r.Advisory
	}
	for _, each := range levelEvents {
		if counts[each.level] == 0 {
			continue
		}
		err := s.record(tx, st, u, each.name, func() (map[string]any, error) {
			list, err := violationsOf(tx, u, each.level)
			return map[string]any{"violations": list, "violationCount": counts[each.level]}, err
		})
		if err != nil {
			return err
		}
	}
	if len(u.Unevaluated) == 0 {
		return nil
	}
	return s.record(tx, st, u, webhooks.PolicyNotEvaluated, func() (map[string]any, error) {
		return map[string]any{"policyPacks": u.Unevaluated}, nil
	})
}

func (s *Service) record(tx *store.Tx, st store.Stack, u store.Update, name webhooks.Name, describe func() (map[string]any, error)) error {
	return webhooks.Record(tx, webhooks.Event{
		Name: name, OrgID: st.OrgID, StackID: st.ID, DeploymentID: u.DeploymentID,
		Describe: func(org string) (webhooks.Description, error) {
			fields, err := describe()
			if err != nil {
				return webhooks.Description{}, err
			}
			fields["updateUrl"] = s.console.Update(org, st.Project, st.Name, u.Version)
			if u.Preview {
				fields["updateUrl"] = s.console.Preview(org, st.Project, st.Name, u.ID)
			}
			fields["kind"], fields["result"], fields["isPreview"] = u.Kind, u.Status, u.Preview
			return webhooks.Description{Project: st.Project, Stack: st.Name, UserID: u.RequestedBy, Fields: fields}, nil
		},
	})
}

// violation is a violation in the payload of an event.
type violation struct {
	Pack     string `json:"policyPackName"`
	Tag      string `json:"policyPackVersion"`
	Policy   string `json:"policyName"`
	Level    string `json:"enforcementLevel"`
	Severity string `json:"severity,omitempty"`
	URN      string `json:"resourceURN"`
	Message  string `json:"message"`
}

// violationsOf returns the first violations of an update at a level, without those to which exceptions apply.
func violationsOf(tx *store.Tx, u store.Update, level findings.Level) ([]violation, error) {
	rows, err := tx.PolicyViolations(u.ID, maxRows)
	if err != nil {
		return nil, err
	}
	list := []violation{}
	for _, v := range rows {
		if v.Level == string(level) && len(v.Exceptions) == 0 && len(list) < maxTold {
			list = append(list, violation{v.Pack, v.Tag, v.Policy, v.Level, v.Severity, v.URN, v.Message})
		}
	}
	return list, nil
}
