package console_test

import (
	"net/http"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// changePolicies changes packs, groups, issues and exceptions.
func (a *auditor) changePolicies() {
	a.API(http.MethodPost, "/api/stacks/acme/policy", map[string]string{"stackName": "dev"}, nil)
	must.OK(a.t, a.DB().Write(a.t.Context(), scope.Server(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName("acme")
		if err != nil {
			return err
		}
		stack, err := tx.StackID(org.ID, "policy", "dev")
		if err != nil {
			return err
		}
		pack := storetest.PolicyPack{
			Name: "aws", Tags: []string{"1.0.0"}, Policies: `[{"name":"tags","enforcementLevel":"mandatory"}]`, Levels: []store.PolicyLevel{{Name: "tags", Level: "mandatory"}},
		}
		if err := pack.Add(tx, org.ID); err != nil {
			return err
		}
		return tx.InsertPolicyIssue(store.PolicyIssue{ID: "i1", OrgID: org.ID, StackID: stack, Kind: "preventative", Pack: "aws", Policy: "tags", Status: store.IssueOpen, Priority: "p3", ObservedAt: tx.Now()})
	}))
	const base = "/{org}/-/policies"
	const group = base + "/groups/{group}"
	a.change(base+"/groups", "name", "prod", "mode", "preventative")
	a.change(group+"/edit prod", "name", "production")
	a.change(group+"/stacks production", "stack", "policy/dev", "action", "add")
	a.change(group+"/packs/{pack} production aws", "version", "1.0.0", "level-0", "advisory", "do", "save")
	a.change(base+"/issues/{issue} i1", "status", "ignored", "reason", "known", "lasts", "7")
	a.change(base+"/exceptions", "pack", "aws", "policies", "tags", "targets", "urn:pulumi:dev::policy::a:b:C::d", "reason", "known", "lasts", "7")
	a.change(base + "/exceptions/{exception}/remove EXC-1")
	a.change(group + "/packs/{pack}/remove production aws")
	a.change(group + "/delete production")
	a.change(base + "/packs/{pack}/remove aws")
}
