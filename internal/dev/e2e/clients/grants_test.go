package clients

import "testing"

// testGrants runs the commands of grants.md.
func (h *host) testGrants(t *testing.T) {
	t.Helper()
	h.sh(t, "stacks", "for s in prod dev; do pulumi stack init organization/platform/$s --no-select --non-interactive; done")
	h.sh(t, "another environment than that of access.md", "pulumi env init organization/app/dev")
	h.run(t, "grants.md", nil, "$STACK/grants/ID", `$STACK/grants/$(curl -H "$AUTH" $STACK/grants | sed 's/.*"readBy":\[{"id":"\([^"]*\)".*/\1/')`,
		"$ENV/grants/ID", `$ENV/grants/$(curl -H "$AUTH" $ENV/grants | sed 's/.*"openedBy":\[{"id":"\([^"]*\)".*/\1/')`)
}
