package webhooks

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// render returns the body of the request for an event.
func render(format, kind, payload string) ([]byte, error) {
	if format != FormatSlack && format != FormatTeams {
		return []byte(payload), nil
	}
	var e message
	if err := json.Unmarshal([]byte(payload), &e); err != nil {
		return nil, fmt.Errorf("decoding an event: %w", err)
	}
	e.kind = kind
	if format == FormatSlack {
		return json.Marshal(e.slack())
	}
	return json.Marshal(e.teams())
}

// message is an event as people read it in a chat. Its texts come from users.
type message struct {
	kind            string
	User            person           `json:"user"`
	Organization    person           `json:"organization"`
	Project         string           `json:"projectName"`
	Stack           string           `json:"stackName"`
	Action          string           `json:"action"`
	Update          string           `json:"kind"`
	Result          string           `json:"result"`
	Operation       string           `json:"operation"`
	Version         int64            `json:"version"`
	Status          string           `json:"status"`
	Drift           bool             `json:"driftDetected"`
	ResourceChanges map[string]int64 `json:"resourceChanges"`
	UpdateURL       string           `json:"updateUrl"`
	DeploymentURL   string           `json:"deploymentUrl"`
	ReferenceURL    string           `json:"referenceUrl"`
	Message         string           `json:"message"`
	Violations      []violation      `json:"violations"`
	ViolationCount  int              `json:"violationCount"`
	Packs           []string         `json:"policyPacks"`
	Environment     string           `json:"environmentName"`
	Revision        int64            `json:"revision"`
	Tag             string           `json:"tagName"`
	Imported        importedRevision `json:"importedEnvironmentReference"`
}

// importedRevision is a revision that an environment imports.
type importedRevision struct {
	Project     string `json:"projectName"`
	Environment string `json:"environmentName"`
	Revision    int64  `json:"revision,omitempty"`
}

// violation is a violation of a policy.
type violation struct {
	Pack    string `json:"policyPackName"`
	Policy  string `json:"policyName"`
	URN     string `json:"resourceURN"`
	Message string `json:"message"`
}

// maxViolations is the maximum number of violations that a message lists.
const maxViolations = 5

// maxLine is the maximum size of a line of a message in bytes.
const maxLine = 500

// title returns the event in one line.
func (m message) title() string {
	of := m.Organization.GithubLogin + "/" + m.Project + "/"
	stack, environment := of+m.Stack, "Environment "+of+m.Environment
	var text string
	switch m.kind {
	case kindPing:
		text = m.Message
	case kindStack:
		text = fmt.Sprintf("Stack %s %s", stack, m.Action)
	case kindUpdate, kindPreview:
		text = fmt.Sprintf("%s: %s %s", stack, m.Update, m.Result)
	case kindDeployment:
		text = fmt.Sprintf("%s: deployment #%d (%s) %s", stack, m.Version, m.Operation, m.Status)
	case kindDriftDetection:
		text = fmt.Sprintf("%s: drift detection %s", stack, m.Status)
		switch {
		case m.Drift:
			text += ", drift detected"
		case m.Status == string(workflow.StatusSucceeded): // otherwise, the result is unknown
			text += ", no drift detected"
		}
	case kindDriftRemediation:
		text = fmt.Sprintf("%s: drift remediation %s", stack, m.Status)
	case kindMandatory:
		text = fmt.Sprintf("%s: %s of mandatory policies in %s", stack, words.Count(m.ViolationCount, "violation"), m.Update)
	case kindAdvisory:
		text = fmt.Sprintf("%s: %s of advisory policies in %s", stack, words.Count(m.ViolationCount, "violation"), m.Update)
	case kindNotEvaluated:
		text = fmt.Sprintf("%s: %s ended without required policy packs: %s", stack, m.Update, strings.Join(m.Packs, ", "))
	case kindEnvironment:
		text = fmt.Sprintf("%s %s", environment, m.Action)
	case kindRevision:
		text = fmt.Sprintf("%s: revision %d %s", environment, m.Revision, m.Action)
	case kindRevisionTag:
		text = fmt.Sprintf("%s: version tag %s %s (revision %d)", environment, m.Tag, m.Action, m.Revision)
	case kindEnvironmentTag:
		text = fmt.Sprintf("%s: tag %s %s", environment, m.Tag, m.Action)
	case kindImported:
		text = fmt.Sprintf("%s: the imported environment %s/%s changed", environment, m.Imported.Project, m.Imported.Environment)
	default:
		text = fmt.Sprintf("%s: %s", stack, m.kind)
	}
	return termtext.OneLine(text, maxLine)
}

// details returns further lines of the message.
func (m message) details() []string {
	if m.kind == kindPing {
		return nil
	}
	out := []string{"By " + termtext.OneLine(m.User.Name+" ("+m.User.GithubLogin+")", maxLine)}
	var changes []string
	for _, op := range slices.Sorted(maps.Keys(m.ResourceChanges)) {
		changes = append(changes, fmt.Sprintf("%s %d", op, m.ResourceChanges[op]))
	}
	if len(changes) > 0 {
		out = append(out, "Resources: "+termtext.OneLine(strings.Join(changes, ", "), maxLine))
	}
	for _, v := range m.Violations[:min(len(m.Violations), maxViolations)] {
		out = append(out, termtext.OneLine(v.Pack+" "+v.Policy+": "+v.URN+": "+v.Message, maxLine))
	}
	if rest := m.ViolationCount - maxViolations; rest > 0 {
		out = append(out, fmt.Sprintf("%d more", rest))
	}
	return out
}

// link returns the URL of the event's page, or "".
func (m message) link() string {
	for _, u := range []string{m.UpdateURL, m.DeploymentURL, m.ReferenceURL} {
		if strings.HasPrefix(u, "https://") || strings.HasPrefix(u, "http://") {
			return u
		}
	}
	return ""
}

type object = map[string]any

// slack returns a message with blocks, and a text for notifications.
func (m message) slack() object {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "/").Replace
	head := "*" + escape(m.title()) + "*"
	if link := m.link(); link != "" {
		head = "*<" + escape(link) + "|" + escape(m.title()) + ">*"
	}
	blocks := []object{{"type": "section", "text": object{"type": "mrkdwn", "text": head}}}
	if details := m.details(); len(details) > 0 {
		blocks = append(blocks, object{"type": "context", "elements": []object{{"type": "plain_text", "emoji": false, "text": strings.Join(details, "\n")}}})
	}
	return object{"text": escape(m.title()), "blocks": blocks}
}

// teams returns a message with an Adaptive Card, for the webhooks of Teams and of its workflows.
// Text runs are plain: Teams renders other texts as Markdown.
func (m message) teams() object {
	line := func(run object) object {
		run["type"] = "TextRun"
		return object{"type": "RichTextBlock", "inlines": []object{run}}
	}
	body := []object{line(object{"text": m.title(), "weight": "bolder"})}
	for _, text := range m.details() {
		body = append(body, line(object{"text": text}))
	}
	card := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": body}
	if link := m.link(); link != "" {
		card["actions"] = []object{{"type": "Action.OpenUrl", "title": "Open", "url": link}}
	}
	return object{"type": "message", "attachments": []object{{"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card}}}
}
