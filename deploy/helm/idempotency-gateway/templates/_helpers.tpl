{{- define "idempotency-gateway.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{- end -}}
{{- end }}

{{- define "idempotency-gateway.labels" -}}
{{ include "idempotency-gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "idempotency-gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The labels of the pods that the gateway runs in. */ -}}
{{- define "idempotency-gateway.pods" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- if not .Values.sidecar.podSelector }}{{ fail "sidecar.podSelector: the labels of your API's pods are required" }}{{ end -}}
{{ .Values.sidecar.podSelector | toYaml }}
{{- else -}}
{{ include "idempotency-gateway.selector" . }}
app.kubernetes.io/component: gateway
{{- end -}}
{{- end }}

{{- define "idempotency-gateway.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "idempotency-gateway.name" .) }}
{{- else -}}{{ .Values.serviceAccount.name | default "default" }}{{- end -}}
{{- end }}

{{- define "idempotency-gateway.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end }}

{{- define "idempotency-gateway.config" -}}
{{- if not .Values.config.upstreams }}{{ fail "config.upstreams: name the API, as in {payments: {url: \"http://payments:8000\"}}" }}{{ end -}}
{{- if not .Values.config.routes }}{{ fail "config.routes: at least one route is required" }}{{ end -}}
{{ .Values.config | toYaml }}
{{- end }}

{{- /* Milliseconds of a duration of the configuration: 250ms 2s 1.5m 24h 7d. */ -}}
{{- define "idempotency-gateway.milliseconds" -}}
{{- if not (regexMatch "^[0-9]+(\\.[0-9]{1,3})?(ms|s|m|h|d)$" .) }}{{ fail (printf "config.drain: %s is no duration such as 250ms, 2s or 5m" .) }}{{ end -}}
{{- $unit := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $unit (regexFind "[a-z]+$" .)) -}}
{{- end }}

{{- /* A gateway ends by itself within drain.delay + drain.timeout, and 5 s for its last writes; rounded up. */ -}}
{{- define "idempotency-gateway.grace" -}}
{{- $drain := .Values.config.drain | default dict -}}
{{- $delay := include "idempotency-gateway.milliseconds" ($drain.delay | default "5s") | float64 -}}
{{- $timeout := include "idempotency-gateway.milliseconds" ($drain.timeout | default "75s") | float64 -}}
{{- divf (addf $delay $timeout 5000) 1000 | ceil | int -}}
{{- end }}

{{- define "idempotency-gateway.volumes" -}}
- name: idempotency-gateway-config
  configMap: {name: {{ include "idempotency-gateway.name" . }}}
- name: idempotency-gateway-secrets
  {{- /* Readable for the gateway's user in pods without an fsGroup; only its own container mounts them. */}}
  secret: {secretName: {{ .Values.secretName }}, defaultMode: 0444}
- name: idempotency-gateway-tmp
  emptyDir: {sizeLimit: {{ .Values.temporary.sizeLimit }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "idempotency-gateway.mounts" -}}
- {name: idempotency-gateway-config, mountPath: /etc/idempotency-gateway, readOnly: true}
- {name: idempotency-gateway-secrets, mountPath: /run/secrets/idempotency-gateway, readOnly: true}
- {name: idempotency-gateway-tmp, mountPath: /tmp}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* What the restricted pod security standard asks of a container, so that it holds in your API's pods, too. */ -}}
{{- define "idempotency-gateway.securityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "idempotency-gateway.container" -}}
name: idempotency-gateway
image: {{ include "idempotency-gateway.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/idempotency-gateway/gateway.yaml, --reload-on-change]
{{- with .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - {name: http, containerPort: 8080}
  - {name: admin, containerPort: 9464}
{{- /* A start waits 30 s for Postgres before it gives up. */}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 2
  failureThreshold: 25
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: {{ .Values.readinessPath }}, port: admin}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
securityContext:
  {{- include "idempotency-gateway.securityContext" . | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  {{- include "idempotency-gateway.mounts" . | nindent 2 }}
{{- end }}

{{- /*
The gateway as a native sidecar: an entry of initContainers in the pod of your API.

When the pod ends, the kubelet would stop the gateway only after the API. So the hook, which runs at once, has the gateway drain, and
stays until the gateway has ended; the API waits meanwhile (idempotency-gateway.preStop).
*/ -}}
{{- define "idempotency-gateway.sidecar" -}}
- {{ include "idempotency-gateway.container" . | indent 2 | trim }}
  restartPolicy: Always
  lifecycle:
    preStop:
      exec:
        command: [python, -c, "import os, signal, time; os.kill(1, signal.SIGTERM); time.sleep({{ include "idempotency-gateway.grace" . }})"]
{{- end }}

{{- /* preStop of the API's own container: it stays for as long as the gateway may have requests for it. */ -}}
{{- define "idempotency-gateway.preStop" -}}
sleep: {seconds: {{ include "idempotency-gateway.grace" . }}}
{{- end }}
