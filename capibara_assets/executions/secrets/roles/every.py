"""All roles, in the order in which they are tried: of two that find the same value the first names its kind."""

from capibara_assets.executions.secrets.roles.announced import ANNOUNCED
from capibara_assets.executions.secrets.roles.arguments import ARGUMENTS
from capibara_assets.executions.secrets.roles.beside import BESIDE
from capibara_assets.executions.secrets.roles.consoles import CONSOLES
from capibara_assets.executions.secrets.roles.forms import FORMS
from capibara_assets.executions.secrets.roles.handed import HANDED
from capibara_assets.executions.secrets.roles.keys import KEYS
from capibara_assets.executions.secrets.roles.named import NAMED
from capibara_assets.executions.secrets.roles.passwords import PASSWORD_ROLES
from capibara_assets.executions.secrets.roles.pieces import PIECES
from capibara_assets.executions.secrets.roles.places import PLACES
from capibara_assets.executions.secrets.roles.positional import POSITIONAL
from capibara_assets.executions.secrets.roles.role import Role
from capibara_assets.executions.secrets.roles.services import SERVICES
from capibara_assets.executions.secrets.roles.tables import TABLES
from capibara_assets.executions.secrets.roles.vicinity import VICINITY
from capibara_assets.executions.secrets.roles.written import WRITTEN

EVERY_ROLE: tuple[Role, ...] = (
    *NAMED,
    *PASSWORD_ROLES,
    *ANNOUNCED,
    *ARGUMENTS,
    *BESIDE,
    *CONSOLES,
    *FORMS,
    *HANDED,
    *KEYS,
    *PIECES,
    *PLACES,
    *POSITIONAL,
    *SERVICES,
    *TABLES,
    *VICINITY,
    *WRITTEN,
)
