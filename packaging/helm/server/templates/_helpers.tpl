{{- define "server.name" -}}
app.kubernetes.io/name: workflow-server
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "server.labels" -}}
{{ include "server.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "server.image" -}}
{{- $tag := printf ":%s" (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest }}{{ $tag = printf "@%s" . }}{{ end -}}
{{ .Values.image.repository }}{{ $tag }}
{{- end }}
