package changes

type progress struct {
	at   int64
	text string
	done bool
}

type event struct {
	Sequence   *int64           `json:"sequence"`
	Timestamp  int64            `json:"timestamp"`
	Cancel     *struct{}        `json:"cancelEvent"`
	Pre        *stepEvent       `json:"resourcePreEvent"`
	Outputs    *stepEvent       `json:"resOutputsEvent"`
	Failed     *stepEvent       `json:"resOpFailedEvent"`
	Diagnostic *diagnosticEvent `json:"diagnosticEvent"`
	Policy     *policyEvent     `json:"policyEvent"`
	Progress   *progressEvent   `json:"progressEvent"`
	Summary    *summaryEvent    `json:"summaryEvent"`
}

type stepEvent struct {
	Metadata metadata `json:"metadata"`
	Planning bool     `json:"planning"`
}

type metadata struct {
	Op           string              `json:"op"`
	URN          string              `json:"urn"`
	Type         string              `json:"type"`
	Old          *stateRef           `json:"old"`
	New          *stateRef           `json:"new"`
	Keys         []string            `json:"keys"`
	Diffs        []string            `json:"diffs"`
	DetailedDiff map[string]diffKind `json:"detailedDiff"`
}

// stateRef has no properties, so that the decoder skips them.
type stateRef struct {
	Parent string `json:"parent"`
}

type diffKind struct {
	Kind string `json:"diffKind"`
}

type diagnosticEvent struct {
	URN       string `json:"urn"`
	Prefix    string `json:"prefix"`
	Message   string `json:"message"`
	Severity  string `json:"severity"`
	Ephemeral bool   `json:"ephemeral"`
}

type policyEvent struct {
	URN         string `json:"resourceUrn"`
	Message     string `json:"message"`
	Name        string `json:"policyName"`
	Pack        string `json:"policyPackName"`
	Enforcement string `json:"enforcementLevel"`
}

type progressEvent struct {
	ID       string `json:"id"`
	Message  string `json:"message"`
	Received int64  `json:"received"`
	Total    int64  `json:"total"`
	Done     bool   `json:"done"`
}

type summaryEvent struct {
	Changes map[string]int `json:"resourceChanges"`
}
