"""`password` and `key` in other languages: as expressions, and as the words that a text holds wherever one matches."""

#: `password` in other languages, and `key`, whose values have to look random. A role that holds them becomes two rules
#: (`rules.py`): with so many words an expression is slow, and a text with one of these words is examined in any case.
FOREIGN = (
    r"passwort|kennwort|passord(?:et)?|wachtwoord|l[öo]senord(?:et)?|adgangskoden?|salasana|jelsz[óo]|contrase"
    r"[nñ]a|senha"
    r"|mot[ _-]?de[ _-]?passe|(?<![a-z])mdp|palavra[ _-]?passe|paswoord"
    r"|(?<![a-z])clave|(?<![a-z])parola|has[łl][oa]\b|hesl[oa]\b|[şŞ]ifre\w{0,3}|lozink[aeu]"
    r"|kata (?:sandi|laluan)|รหัสผ่าน|पासवर्ड|salas[õo]na|parool|parole\b|slapta[žz]od\w{1,4}|zapork[aeu]|geslo\b"
    r"|lykilor[ðd]|contrasinal|pasahitza|wagwoord|nenosiri|পাসওয়ার্ড|கடவுச்சொல்|პაროლი|գաղտնաբառ|رمز عبور|گذرواژه"
    r"|mật khẩu|[Пп]арол[ья]|κωδικός|סיסמה|كلمة المرور|パスワード|暗証番号|비밀번호|암호|密码|密碼|口令"
)
FOREIGN_ANCHORS = (
    *(
        "passwort",
        "kennwort",
        "passord",
        "palavra",
        "wachtwoord",
        "senord",
        "adgangskode",
        "salasana",
        "jelsz",
        "contrase",
        "senha",
        "mot de",
        "mot_de",
        "mot-de",
        "motde",
        "mdp",
        "paswoord",
        "clave",
    ),
    *("parola", "hasło", "hasła", "haslo", "hasla", "heslo", "hesla", "şifre", "lozink", "mật kh", "парол", "κωδικ"),
    *(
        "kata sandi",
        *("kata laluan", "salasõna", "salasona", "parool", "parole", "slapta", "zapork", "geslo", "lykilor"),
        *("contrasinal", "pasahitza", "wagwoord", "nenosiri", "পাসওয়ার্ড", "கடவுச்சொல்", "პაროლი", "գաղտնաբառ"),
        *("رمز عبور", "گذرواژه"),
        "รหัสผ่าน",
        "पासवर्ड",
        "סיסמה",
        "كلمة",
        "パスワード",
        "暗証番号",
        "비밀번호",
        "암호",
        "密码",
        "密碼",
        "口令",
    ),
)
FOREIGN_KEYS = r"schl(?:ü|ue)ssel|geheimnis|(?<![a-z])clé[ ]\w|jeton|chiave|chave|sleutel|klucz|[Кк]люч|密钥|密鑰|キー"
FOREIGN_KEYS += r"|nyckel|n[øo]kkel|n[øo]gle[nr]?\b|anahtar|kunci\b|khóa|api[ ]?키|avain\b|kľúč|klíč|kulcs\w?\b"
FOREIGN_KEYS += r"|cheie|ključ\b"
FOREIGN_KEYS += "|مفتاح|κλειδί|מפתח|कुंजी|คีย์|[Тт]окен|トークン|令牌|토큰|გასაღები|atslēg|raktas\\b"
FOREIGN_KEY_ANCHORS = (
    *("schlüssel", "schluessel", "geheimnis", "clé", "jeton", "chiave", "chave", "sleutel", "klucz"),
    *("ключ", "密钥", "密鑰", "キー"),
    *("nyckel", "nøkkel", "nokkel", "nøgle", "nogle", "anahtar", "kunci", "khóa", "api키", "api 키", "avain"),
    *("kľúč", "klíč", "kulcs", "cheie", "ključ", "مفتاح", "κλειδί", "מפתח", "कुंजी", "คีย์", "токен", "トークン"),
    *("令牌", "토큰", "გასაღები", "atslēg", "raktas"),
)
