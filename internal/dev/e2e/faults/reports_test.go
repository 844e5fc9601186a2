package faults

// reportPlace is the heading of the rows about what git hosts report.
const reportPlace = "Pushes and pull requests"

// headDeployed is the outcome of reports about a repository: each stack has deployed the files of the
// newest commit that its path filters select.
var headDeployed = outcome{update: "the newest commit is deployed"}

// reportEvidence are rows that other packages test: no job is concerned yet.
var reportEvidence = []faultRow{
	{
		phase: "pushed", want: headDeployed, evidence: "server/vcs.TestLostReports",
		fault: "reports about a branch or a tag, which is moved by force, deleted and created, too, are lost, late, doubled and mixed; then a poll",
	},
	{
		phase: "pushed", want: headDeployed, evidence: "server/vcs.TestLostReportsWithoutPolls",
		fault: "as before, from a git server that cannot be asked, until the last report",
	},
	{
		phase: "pushed", want: headDeployed, evidence: "server/gitops/dispatch.TestPushWhoseReportIsLost",
		fault: "the report of a push that matters to a path filter is lost; the next push does not matter",
	},
	{
		phase: "opened", want: headDeployed, evidence: "server/gitops/dispatch.TestReportsOfPulls",
		fault: "reports about the commits of a pull request are lost, late and doubled; then a poll",
	},
	{
		phase: "tagged", want: headDeployed, evidence: "server/gitops/dispatch.TestManyTagsWithReports",
		fault: "a poll finds many new tags while reports about them wait",
	},
}
