package agent_test

const childVariable = "WORKFLOW_AGENT_TEST_CHILD"

func runnerMain([]string) int { return 1 }

func agentMain() int { return 1 }
