package orgsettings

import (
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
)

// audit is the page from which administrators download the audit log.
func (p *pages) audit(v *page.Visit) (view.Page, error) {
	return p.settingsPage(v, "audit", "", auditDownloads(at(v)))
}
