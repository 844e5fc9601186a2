package policies

import (
	"net/url"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/words"
)

type complianceModel struct {
	place
	results.Matrix
	By          string
	First, More string
}

// by returns the path of the matrix with other rows.
func (m complianceModel) by(entity string) string {
	if entity == results.ByStack {
		return m.path("compliance")
	}
	return m.path("compliance") + "?by=" + entity
}

func (p *pages) compliance(v *page.Visit) (view.Page, error) {
	m := complianceModel{place: at(v), By: results.ByStack}
	if v.Query("by") == results.BySeverity {
		m.By = results.BySeverity
	}
	var err error
	if m.Matrix, err = p.Results.Compliance(v.Context(), v.Who, v.Org, m.By, v.Query("after"), rows); err != nil {
		return view.Page{}, err
	}
	if v.Query("after") != "" {
		m.First = m.by(m.By)
	}
	if m.Next != "" {
		m.More = m.path("compliance") + "?" + url.Values{"after": {m.Next}}.Encode()
	}
	count := ""
	if m.First == "" && m.More == "" && len(m.Rows) > 0 {
		count = words.Number(len(m.Rows))
	}
	return view.Page{Title: m.title("compliance"), Section: section, Bar: m.bar("compliance", count), Body: complianceBody(m), Live: topics(v)}, nil
}

// href is the path of what a row is about. The names of groups do not contain a slash.
func (m complianceModel) href(row string) string {
	first, second, _ := strings.Cut(row, "/")
	if m.By == results.BySeverity {
		return m.path("packs", second)
	}
	return links.Path(m.Org, first, second)
}
