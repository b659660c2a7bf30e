"""Under which names and versions things are asked for."""

import pytest

from shared.errors import SettingsError
from shared.naming import NamingSettings
from shared.objects import Kind
from shared.settings import load


def loaded(**environ: str) -> NamingSettings:
    return load(NamingSettings, {"CLUSTER_NAME": "east", **environ})


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_the_version_of_llm_objects_is_that_of_the_setting(version):
    assert loaded(LLMISVC_API_VERSION=version).api_version(Kind.LLMISVC) == f"serving.kserve.io/{version}"


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_the_version_of_inference_services_is_one_whatever_the_setting_says(version):
    assert loaded(LLMISVC_API_VERSION=version).api_version(Kind.ISVC) == "serving.kserve.io/v1beta1"


def test_llm_objects_are_asked_for_as_kserve_stores_them_unless_told_otherwise():
    assert loaded().api_version(Kind.LLMISVC) == "serving.kserve.io/v1alpha2"


@pytest.mark.parametrize("version", ["v1beta1", "v1", "alpha2", "serving.kserve.io/v1alpha2"])
def test_a_version_that_is_not_known_is_refused_by_name(version):
    with pytest.raises(SettingsError, match="LLMISVC_API_VERSION"):
        loaded(LLMISVC_API_VERSION=version)
