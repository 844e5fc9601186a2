#!/bin/sh
# Prints the pods of jobs with their status, resources and problems, every few seconds.
#
#   monitor.sh [NAMESPACE] [SECONDS]
#
# NAMESPACE is the namespace of the jobs (default: workflow-agent-jobs). With 0 seconds (default: 10),
# the script prints once. It needs the rights to list pods and events, and for CPU and memory also a
# metrics server.
set -eu

namespace=${1:-workflow-agent-jobs}
pause=${2:-10}
selector=app.kubernetes.io/name=workflow-runner

show() {
	printf '\n%s, namespace %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$namespace"
	kubectl get pods --namespace "$namespace" --selector "$selector" --sort-by .metadata.creationTimestamp \
		--output 'custom-columns=POD:.metadata.name,STACK:.metadata.annotations.workflowagent/stack,PHASE:.status.phase,WAITING:.status.initContainerStatuses[*].state.waiting.reason,JOB:.status.containerStatuses[?(@.name=="pulumi-workflow")].state.*.reason,NODE:.spec.nodeName,CREATED:.metadata.creationTimestamp'
	if ! kubectl top pods --namespace "$namespace" --selector "$selector" --containers 2>/dev/null; then
		echo 'CPU and memory are unknown: the cluster has no metrics server, or no job is running.'
	fi
	echo 'Warnings:'
	kubectl get events --namespace "$namespace" --field-selector type=Warning,involvedObject.kind=Pod \
		--sort-by .lastTimestamp --output 'custom-columns=LAST:.lastTimestamp,POD:.involvedObject.name,REASON:.reason,MESSAGE:.message' |
		tail -n 10
}

show
while [ "$pause" -gt 0 ]; do
	sleep "$pause"
	show
done
