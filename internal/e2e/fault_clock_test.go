package e2e

// clockRows are about clocks, which only unit tests can set.
var clockRows = []faultRow{
	{
		phase: "running", fault: "the server was away: the clock jumps over the lost limit between two of its looks", want: kept,
		evidence: "server/deployments.TestSilenceWhileTheServerWasAwayDoesNotCount",
	},
}
