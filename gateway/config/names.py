"""Every setting by its declaration, as the attribute of its class: `POLICY.lease`. A rule names a setting so, and never
by its text.
"""

from gateway.config.model import ClientSettings, Config, DrainSettings, MemorySettings, ProgressSettings, RouteMap
from gateway.config.settings.admin import Admin, OidcSettings, SessionSettings, User
from gateway.config.settings.stores import EncryptionKeys, EncryptionSettings, PostgresSettings, RedisSettings
from gateway.config.settings.tls import TlsClient, TlsServer
from gateway.config.settings.upstreams import Targets, UpstreamConfig, UpstreamHealth, UpstreamTimeouts
from gateway.core.cors import Cors
from gateway.core.fingerprint_policy import FingerprintPolicy
from gateway.core.hints import Hint
from gateway.core.key_policy import KeyPolicy, KeySource, KeyTarget
from gateway.core.policy import Limits, Participate, Policy, Route
from gateway.core.principal_source import CertificatePrincipal, ForwardAuthPrincipal, JwtKeys, JwtPrincipal, SourceForm
from gateway.core.quota import Quota
from gateway.core.reconcile.policy import ConditionForm, Pace, ProbeForm, Reconcile, RequestForm, Rule, Webhook
from gateway.core.rewrite import Rewrite
from gateway.core.second_approval import Above, SecondApproval
from gateway.core.sent_fields import AnswerFields, SentFields
from gateway.core.setting import names

ABOVE = names(Above)
ADMIN = names(Admin)
ANSWER_FIELDS = names(AnswerFields)
CERTIFICATE = names(CertificatePrincipal)
CLIENT = names(ClientSettings)
CONDITION = names(ConditionForm)
CONFIG = names(Config)
CORS = names(Cors)
DRAIN = names(DrainSettings)
ENCRYPTION = names(EncryptionSettings)
ENCRYPTION_KEYS = names(EncryptionKeys)
FINGERPRINT = names(FingerprintPolicy)
FORWARD_AUTH = names(ForwardAuthPrincipal)
HEALTH = names(UpstreamHealth)
HINT = names(Hint)
JWT = names(JwtPrincipal)
JWT_KEYS = names(JwtKeys)
KEY = names(KeyPolicy)
KEY_SOURCE = names(KeySource)
KEY_TARGET = names(KeyTarget)
LIMITS = names(Limits)
MEMORY = names(MemorySettings)
OIDC = names(OidcSettings)
PACE = names(Pace)
PARTICIPATE = names(Participate)
POLICY = names(Policy)
POSTGRES = names(PostgresSettings)
PROBE = names(ProbeForm)
PROGRESS = names(ProgressSettings)
QUOTA = names(Quota)
RECONCILE = names(Reconcile)
REDIS = names(RedisSettings)
REQUEST = names(RequestForm)
REWRITE = names(Rewrite)
ROUTE = names(Route)
ROUTE_MAP = names(RouteMap)
RULE = names(Rule)
SECOND_APPROVAL = names(SecondApproval)
SENT_FIELDS = names(SentFields)
SESSIONS = names(SessionSettings)
SOURCE = names(SourceForm)
TARGETS = names(Targets)
TIMEOUTS = names(UpstreamTimeouts)
TLS_CLIENT = names(TlsClient)
TLS_SERVER = names(TlsServer)
UPSTREAM = names(UpstreamConfig)
USER = names(User)
WEBHOOK = names(Webhook)
